"""Drafts of profiles: what counts as an edit, and what becomes of it when the file changes."""

from backend.desk.types import ProfileForm
from gui.panes.profiles.drafts import ProfileDrafts


def form(**values: str) -> ProfileForm:
    return ProfileForm("mine", read_only=False, fields=(), values=values)


def test_an_edit_that_says_what_is_saved_is_none() -> None:
    drafts = ProfileDrafts()
    drafts.load(form(a="1", b=""))
    drafts.edit("mine", "a", "2")
    drafts.edit("mine", "b", "x")
    assert (drafts.names, drafts.count("mine"), drafts.values("mine")) == (("mine",), 2, {"a": "2", "b": "x"})
    drafts.edit("mine", "a", "1")
    drafts.edit("mine", "b", "")
    assert (drafts.names, drafts.count("mine")) == ((), 0)


def test_what_was_typed_while_a_save_was_on_its_way_stays() -> None:
    drafts = ProfileDrafts()
    drafts.load(form(a="1", b="1"))
    drafts.edit("mine", "a", "2")
    drafts.edit("mine", "b", "2")
    sent = drafts.values("mine")
    drafts.edit("mine", "a", "3")
    drafts.saved(form(a="2", b="2"), sent)
    assert drafts.values("mine") == {"a": "3", "b": "2"}
    assert drafts.count("mine") == 1


def test_edits_stay_over_a_file_that_changed() -> None:
    drafts = ProfileDrafts()
    drafts.load(form(a="1", b="1"))
    drafts.edit("mine", "a", "2")
    drafts.load(form(a="2", b="5"))
    assert (drafts.count("mine"), drafts.values("mine")) == (0, {"a": "2", "b": "5"})


def test_edits_can_be_taken_and_put() -> None:
    drafts = ProfileDrafts()
    drafts.load(form(a="1"))
    drafts.edit("mine", "a", "2")
    edits = drafts.take("mine")
    assert drafts.values("mine") == {"a": "1"}
    drafts.put("other", edits)
    assert (drafts.names, drafts.values("other")) == (("other",), {"a": "2"})
