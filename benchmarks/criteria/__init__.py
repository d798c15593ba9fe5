"""Verdicts on criteria compared with verifiers: IFEval's constraints as the criteria of a row."""
