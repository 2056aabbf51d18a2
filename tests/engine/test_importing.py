"""What transformers defines is looked up once, found as before, and never looked through again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import models
from transformers.utils.import_utils import define_import_structure

TELL = """
import gc, json, sys
opened = []
sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "open" else None)
import playground
from transformers import models
print(json.dumps({
    "read": sum(str(path).endswith("modeling_albert.py") for path in opened),
    "names": models.__all__,
    "frozen": gc.get_freeze_count(),
    "collecting": gc.isenabled(),
}))
"""


@pytest.fixture(scope="module")
def told() -> Any:
    """How things are where the playground was just imported."""
    root = Path(__file__).parents[2]
    return json.loads(subprocess.check_output([sys.executable, "-c", TELL], cwd=root))


def test_the_source_of_a_model_that_nobody_wants_is_read_once(told: Any) -> None:
    assert told["read"] == 1


def test_all_that_transformers_finds_among_its_models_is_there(told: Any) -> None:
    found = define_import_structure(str(models.__file__))
    names = {name for modules in found.values() for defined in modules.values() for name in defined}
    assert len(names) > 1000
    assert {*told["names"]} >= names


def test_what_was_imported_is_never_looked_through_and_the_collector_works(told: Any) -> None:
    assert told["frozen"] > 100_000
    assert told["collecting"]
