"""Files that end early, where the outcome does not depend on how much is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.check import checked
from inspector.report import examined
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES
from tests.oracle.builds import BUILDS, Build
from tests.oracle.trial import MODELS, NAME, Bench

pytestmark = pytest.mark.oracle

MODEL = MODELS / "llama-gqa.gguf"
SAVES = {10229: "ggsq2.kv--llama-b10229-short.slot", 11549: "ggsq4.kv--llama-b11549-short.slot"}
BOTH = [build for build in BUILDS if build.number in SAVES]


@pytest.mark.parametrize("build", BOTH, ids=str)
def test_a_cut_in_front_of_the_first_block_is_refused(bench: Bench, build: Build) -> None:
    save = SAMPLES / "intact" / SAVES[build.number]
    data = save.read_bytes()
    with examined(save) as report:
        first, cells = report.sections[0].k[0], report.sections[0].tables[0].span
        assert first.data is not None
        cuts = [cells.start, cells.start + 13, *range(cells.stop, first.data.start, 4)]
    path = bench.folder / NAME
    options = f"llama-server -m {MODEL} -c 512 -np 1 -fa on"
    with target_of(options, str(build)) as target, bench.serve(build, MODEL) as server:
        for cut in cuts:
            path.write_bytes(data[:cut])
            with checked(path, target) as found:
                assert found.restore.outcome is Outcome.REFUSES, cut
            assert server.restore(NAME).status == 400, cut


@pytest.mark.parametrize("build", BOTH, ids=str)
def test_no_server_starts_with_a_model_that_is_cut(
    bench: Bench, tmp_path: Path, build: Build
) -> None:
    model = tmp_path / "cut.gguf"
    model.write_bytes(MODEL.read_bytes()[:300_000])
    with examined(model) as report:
        assert "gguf.truncated" in {finding.code for finding in report.findings}
    with pytest.raises(RuntimeError, match="not within the file bounds"):
        bench.serve(build, model).__enter__()
