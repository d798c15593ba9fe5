"""The 25 constraint families of IFEval: wordings, arguments, edits that keep or break them, programs."""
