"""ES modules become one script for a report."""

import pytest

from playground.export.bundle import bundle


def write(folder, **modules):
    for name, source in modules.items():
        folder.joinpath(f"{name}.js").write_text(source, encoding="utf-8")
    return folder / "entry.js"


def test_bundle_runs_each_module_once_before_those_that_import_it(tmp_path):
    entry = write(
        tmp_path,
        entry='import { one } from "./one.js";\nimport {\n  two as other,\n} from "./two.js";\n',
        one='import { two } from "./two.js";\nexport const one = two;\n',
        two="export function two() {}\nexport class Three {}\n",
    )
    script = bundle(entry)
    assert script.count("function two()") == 1
    assert script.index("function two()") < script.index("const one = two")
    assert "return { two, Three };" in script and "two: other" in script


def test_bundle_refuses_what_it_does_not_understand(tmp_path):
    with pytest.raises(ValueError, match="cannot be bundled"):
        bundle(write(tmp_path, entry='import * as all from "./one.js";\n'))
    circle = write(
        tmp_path,
        entry='import { a } from "./a.js";\n',
        a='import { b } from "./b.js";\nexport const a = 1;\n',
        b='import { a } from "./a.js";\nexport const b = 1;\n',
    )
    with pytest.raises(ValueError, match="circular"):
        bundle(circle)
