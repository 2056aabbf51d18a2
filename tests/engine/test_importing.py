"""What transformers defines is looked up once, found as before, and never looked through again."""

import subprocess
import sys
from pathlib import Path

from transformers import models
from transformers.utils.import_utils import define_import_structure

ROOT = Path(__file__).parents[2]
COUNT = """
import sys
opened = []
sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "open" else None)
import playground
from transformers import LlamaForCausalLM
print(sum(str(path).endswith("modeling_albert.py") for path in opened))
"""


def said(program: str) -> str:
    """What a program prints, run by itself in the repository."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def test_the_source_of_a_model_that_nobody_wants_is_read_once() -> None:
    assert said(COUNT).split() == ["1"]


def test_all_that_transformers_finds_among_its_models_is_there() -> None:
    found = define_import_structure(str(models.__file__))
    names = {name for modules in found.values() for defined in modules.values() for name in defined}
    told = said("import playground; from transformers import models; print(*models.__all__)")
    assert len(names) > 1000
    assert {*told.split()} >= names


def test_what_was_imported_is_never_looked_through_and_the_collector_works() -> None:
    told = "import gc, playground; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    assert said(told).split() == ["True", "True"]
