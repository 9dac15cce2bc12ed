"""Every word by which a state is told is explained in the guide, once."""

from pathlib import Path

from quartermaster.backends.cstor import reasons

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "cstor.md").read_text()


def test_the_guide_explains_every_phase_condition_and_reason() -> None:
    words = {value for name, value in vars(reasons).items() if name.isupper()}
    assert [word for word in sorted(words) if f"`{word}`" not in GUIDE] == []
