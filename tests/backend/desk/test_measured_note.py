"""What the window says of a profile that was measured before it was shipped."""

from backend.desk.runs import _measured_note
from backend.launch.profile_store import ProfileStore


def test_a_shipped_demo_says_what_it_was_measured_to_do() -> None:
    profile = ProfileStore().get("demo")
    assert profile.measured is not None
    note = _measured_note(profile)
    assert note.startswith(f"{profile.measured.speed_ratio:.2g}x the speed without speculation, ")
    assert f", {round(profile.measured.acceptance_ratio * 100)} % accepted. " in note
    assert note.endswith(f"{profile.measured.note} ({profile.measured.on})")


def test_others_say_nothing() -> None:
    assert _measured_note(None) == ""
    assert _measured_note(ProfileStore().get("demo").model_copy(update={"measured": None})) == ""
