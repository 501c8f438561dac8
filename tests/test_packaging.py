"""The shipped files are the intended ones, and importing them costs only what it must."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HARNESS = ROOT / "tests" / "harness"


def wheel_packages() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert isinstance(packages, list)
    return packages


def build(target: str, folder: Path) -> Path:
    command = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (path,) = folder.iterdir()
    return path


def modules_after(statement: str, folder: Path) -> set[str]:
    """The modules of a fresh interpreter, full names, without the standard library."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = (sys.executable, "-P", "-c", program)
    result = subprocess.run(
        command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    )
    return {
        name
        for name in result.stdout.split()
        if name.partition(".")[0] not in sys.stdlib_module_names
    }


def test_every_plugin_directory_is_packaged() -> None:
    """A new plugins/xep_* directory is listed in pyproject and carries py.typed."""
    found = [path.parent for path in ROOT.glob("plugins/*/__init__.py")]
    expected = {"qos", *(str(path.relative_to(ROOT)) for path in found)}
    assert set(wheel_packages()) == expected
    for package in expected:
        assert (ROOT / package / "py.typed").exists()


def test_plugins_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "plugins" / "__init__.py").exists()


@pytest.mark.parametrize("name", ["plugins", "tests", "examples"])
def test_source_roots_are_not_importable(name: str, tmp_path: Path) -> None:
    """In another folder: in the checkout itself, '' on sys.path would find them.

    Others may have packages with these names: gmqtt installs its `tests` and
    `examples`.
    """
    program = (
        "import importlib.util, sys\n"
        "spec = importlib.util.find_spec(sys.argv[1])\n"
        "print(*(spec.submodule_search_locations if spec else []), sep='\\n')\n"
    )
    command = (sys.executable, "-P", "-c", program, name)
    result = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert str(ROOT / name) not in result.stdout.splitlines()


def test_a_wheel_contains_exactly_the_packages(tmp_path: Path) -> None:
    """All their files, no tests, and metadata with the licence."""
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
    info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    shipped = {name for name in names if not name.startswith(f"{info}/")}
    assert shipped == {
        str(path.relative_to((ROOT / package).parent))
        for package in wheel_packages()
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{info}/licenses/LICENSE" in names
    assert f"{info}/entry_points.txt" in names


def test_a_source_distribution_can_be_tested(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tests = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.py")}
    guide = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")}
    front = {"CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"}
    front |= {"LICENSE", "Makefile", "pyproject.toml", ".pre-commit-config.yaml"}
    front |= {".ci/run", ".github/workflows/ci.yml"}
    assert tests | guide | front <= names


@pytest.mark.parametrize("package", ["qos", "xep_qos"])
def test_importing_the_library_imports_only_what_it_needs(
    package: str, tmp_path: Path
) -> None:
    """A device has little memory: no command line, no testing tools, no extras."""
    needed = modules_after("import slixmpp, aiofiles", tmp_path)
    modules = modules_after(f"import {package}", tmp_path)
    added = {name.partition(".")[0] for name in modules - needed}
    # A plugin may load parts of slixmpp and aiofiles that they do not load themselves.
    assert added <= {"slixmpp", "aiofiles", "qos", "xep_qos", "xep_0337"}
    assert not modules & {"qos.cli", "qos.testing", "pyspark"}


def test_a_part_for_tests_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    """The clients of other brokers are measured, and the server for tests is not."""
    modules = modules_after("import qos.testing.ports", tmp_path)
    assert "qos.testing.server" not in modules
    modules = modules_after("from qos.testing import LoopbackServer", tmp_path)
    assert "qos.testing.server" in modules


def test_what_tries_to_break_it_is_not_shipped(tmp_path: Path) -> None:
    """A user of the library does not need the simulation or similar tools."""
    harness = [path for path in ROOT.glob("tests/harness/**/*.py") if path.read_bytes()]
    kinds = {"simulation", "campaign", "mutant", "mutants", "power_cut"}
    roots = "|".join({path.relative_to(HARNESS).parts[0] for path in harness})
    imported = re.compile(
        rf"^(?:from|import) ({roots.replace('.py', '')})\b", re.MULTILINE
    )
    theirs = {path.read_bytes() for path in harness}
    assert len(theirs) > 30
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        for name in wheel.namelist():
            assert not kinds & {*Path(name).parts, Path(name).stem}, name
            content = wheel.read(name)
            assert content not in theirs, name
            if name.endswith(".py"):
                assert not imported.search(content.decode()), name


def test_an_index_would_take_what_is_built(tmp_path: Path) -> None:
    """The metadata can be shown, and the wheel has only the permitted files."""
    for target in ("wheel", "sdist"):
        built = build(target, tmp_path / target)
        check = ("twine", "check", "--strict", str(built))
        subprocess.run((sys.executable, "-m", *check), check=True)
    (wheel,) = (tmp_path / "wheel").iterdir()
    checker = Path(sys.executable).parent / "check-wheel-contents"
    subprocess.run((checker, "--config", ROOT / "pyproject.toml", wheel), check=True)


def test_a_command_does_not_pay_for_the_completion(tmp_path: Path) -> None:
    """The script is made only once."""
    modules = modules_after("import qos.cli.entry", tmp_path)
    assert not modules & {"shtab", "qos.cli.completion"}


def test_no_text_installs_the_library_by_its_name() -> None:
    """It is not on PyPI: there is nothing of this name, or what somebody else has put there."""
    by_name = re.compile(
        r"\b(?:pipx? install|uv add) (?:(?!in )[\w=-]+ )*['\"]?xmpp-qos\b"
    )
    texts = [
        path
        for top in (
            "README.md",
            "CONTRIBUTING.md",
            "docs",
            "examples",
            "qos",
            "plugins",
        )
        for path in ((ROOT / top).rglob("*") if (ROOT / top).is_dir() else [ROOT / top])
        if path.suffix in {".md", ".ipynb", ".py", ".sh", ".yml", ".toml"}
    ]
    assert len(texts) > 300
    assert by_name.search("pip install -q jupyterlab 'xmpp-qos[spark]'")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts
        # This one says why not.
        if path != ROOT / "qos" / "extras.py"
        for line in path.read_text().splitlines()
        if by_name.search(line)
    ]
    assert found == []
