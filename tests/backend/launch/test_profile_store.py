"""Keeping profiles: presets stay as they are, files stay whole, damaged ones hurt nobody."""

import os
from pathlib import Path

import pytest

from backend import paths
from backend.errors import ProfileError, UsageError
from backend.launch.profile import Profile
from backend.launch.profile_model import Target
from backend.launch.profile_store import ProfileStore

PRESET = '# ships\nschema = 1\n\n[target]\nmodel = "a/b" # the model\n'


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "small.toml").write_text(PRESET)
    return ProfileStore(presets=tmp_path / "presets", own=tmp_path / "own")


def _own(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / "own" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_copy_keeps_every_character_and_is_private(store: ProfileStore, tmp_path: Path) -> None:
    path = store.copy("small", "mine")
    assert path == tmp_path / "own" / "mine.toml"
    assert path.read_text() == PRESET
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(one.name, one.read_only) for one in store.list()] == [("mine", False), ("small", True)]


def test_saving_an_own_profile_keeps_its_comments(store: ProfileStore) -> None:
    path = store.copy("small", "mine")
    store.save(Profile(name="mine", target=Target(model="c/d", dtype="float32")))
    assert path.read_text() == (
        '# ships\nschema = 1\n\n[target]\nmodel = "c/d" # the model\ndtype = "float32"\n'
    )  # fmt: skip


def test_a_new_profile_is_written_and_read(store: ProfileStore) -> None:
    profile = Profile(name="new", target=Target(model="c/d", max_model_len=512))
    assert store.save(profile).read_text() == 'schema = 1\n\n[target]\nmodel = "c/d"\nmax_model_len = 512\n'
    assert store.get("new") == profile


def test_presets_are_never_changed(store: ProfileStore, tmp_path: Path) -> None:
    profile = store.get("small")
    for change in (lambda: store.save(profile), lambda: store.delete("small"), lambda: store.rename("small", "x")):
        with pytest.raises(ProfileError, match="ships with Specdeck"):
            change()
    with pytest.raises(ProfileError, match="ships with Specdeck"):
        store.copy("small", "small")
    assert (tmp_path / "presets" / "small.toml").read_text() == PRESET


def test_rename_and_delete(store: ProfileStore, tmp_path: Path) -> None:
    store.copy("small", "one")
    store.copy("small", "two")
    with pytest.raises(ProfileError, match="already a profile named two"):
        store.rename("one", "two")
    store.rename("one", "three")
    store.delete("two")
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["three.toml"]


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "-dash", "x" * 65, "ä", "new\n"])
def test_a_name_that_is_unsafe_for_a_file_is_refused(store: ProfileStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(ProfileError, match="no good name"):
        store.copy("small", name)
    assert not (tmp_path / "own").exists()


def test_an_unknown_name_gets_a_hint(store: ProfileStore) -> None:
    with pytest.raises(UsageError, match="Did you mean small"):
        store.get("smal")
    with pytest.raises(UsageError, match="no profile named"):
        store.get("../presets/small")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[target\n", "line 1"),
        ('[target]\nmodel = 3\n', "line 2: target.model should be text in quotes"),
        (b'[target]\nmodel = "\xff"\n', "UTF-8"),
        ("schema = 99\n", "schema 99"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_and_left_alone(
    store: ProfileStore, tmp_path: Path, text: str | bytes, reason: str
) -> None:
    path = _own(tmp_path, "bad", text)
    before = path.read_bytes()
    listed = {one.name: one for one in store.list()}
    assert listed["bad"].profile is None
    assert reason in listed["bad"].problem
    assert listed["small"].profile is not None
    with pytest.raises(ProfileError, match=r"bad\.toml"):
        store.get("bad")
    with pytest.raises(ProfileError, match="was not overwritten"):
        store.save(Profile(name="bad", target=Target(model="a/b")))
    with pytest.raises(ProfileError):
        store.copy("bad", "other")
    assert path.read_bytes() == before


def test_a_folder_or_an_unreadable_link_in_place_of_a_file_is_damaged(store: ProfileStore, tmp_path: Path) -> None:
    (tmp_path / "own" / "odd.toml").mkdir(parents=True)
    (tmp_path / "own" / "lost.toml").symlink_to(tmp_path / "nowhere")
    listed = {one.name: one.problem for one in store.list()}
    assert "Is a directory" in listed["odd"]
    assert "No such file" in listed["lost"]
    assert listed["small"] == ""


def test_an_own_file_hides_a_preset_of_the_same_name(store: ProfileStore, tmp_path: Path) -> None:
    _own(tmp_path, "small", '[target]\nmodel = "mine/mine"\n')
    assert [(one.name, one.read_only) for one in store.list()] == [("small", False)]
    assert store.get("small").target.model == "mine/mine"


def test_a_crash_before_the_replace_leaves_the_old_file(
    store: ProfileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.copy("small", "mine")

    def crash(source: str, target: Path) -> None:
        assert Path(source).read_text() != PRESET, "the new text must be complete before the old one goes"
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        store.save(Profile(name="mine", target=Target(model="c/d")))
    assert path.read_text() == PRESET
    assert [one.name for one in path.parent.iterdir()] == ["mine.toml"]


def test_a_temporary_file_of_a_crash_is_no_profile(store: ProfileStore, tmp_path: Path) -> None:
    _own(tmp_path, "mine", PRESET)
    (tmp_path / "own" / ".mine.toml.x1y2").write_text("half")
    assert [one.name for one in store.list()] == ["mine", "small"]


def test_a_linked_file_is_written_where_it_lies(store: ProfileStore, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(PRESET)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.toml").symlink_to(real)
    store.save(Profile(name="mine", target=Target(model="c/d")))
    assert (tmp_path / "own" / "mine.toml").is_symlink()
    assert '"c/d" # the model' in real.read_text()


def test_the_shipped_presets_are_sound_and_say_what_they_need() -> None:
    stored = ProfileStore(own=paths.folders().profiles).list()
    assert [one.name for one in stored] == [
        "demo", "demo-ngram", "llama-3.1-8b-eagle3", "llama-3.3-70b-draft-1b", "ngram-editing",
        "qwen-coder-draft", "qwen3-32b-draft-0.6b",
    ]  # fmt: skip
    for one in stored:
        assert one.profile is not None, one.problem
        assert one.profile.title, one.name
        assert one.profile.description.endswith("."), one.name
        assert one.profile.hardware.endswith("."), one.name
        assert one.path.read_text().startswith("#"), one.name
        for part in (one.profile.target, one.profile.speculation):
            on_hub = part.model is not None and not part.model.startswith("specdeck://")
            assert (part.download_bytes is not None) == on_hub, one.name


def test_a_file_with_a_name_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "bl ank.toml").write_text('schema = 1\n[target]\nmodel = "a/b"\n')
    store = ProfileStore(presets=tmp_path / "none", own=tmp_path)
    with pytest.raises(ProfileError, match="no good name"):
        store.get("bl ank")


def test_a_byte_order_mark_and_a_pipe_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbfschema = 1\n[target]\nmodel = 'a/b'\n")
    os.mkfifo(tmp_path / "pipe.toml")
    bom, pipe = ProfileStore(presets=tmp_path / "none", own=tmp_path).list()
    assert bom.profile is not None
    assert bom.profile.target.model == "a/b"
    assert "no file" in pipe.problem


def test_a_profile_that_is_put_away_can_be_brought_back(store: ProfileStore, tmp_path: Path) -> None:
    path = store.copy("small", "mine")
    token = store.put_away("mine")
    assert [one.name for one in store.list()] == ["small"]
    store.copy("small", "mine")
    with pytest.raises(ProfileError, match="already a profile named mine"):
        store.bring_back(token)
    path.write_text('[target]\nmodel = "other/one"\n')
    store.put_away("mine")
    assert store.bring_back(token) == "mine"
    assert path.read_text() == PRESET
    for wrong in (token, "", "../presets/small.toml", ".x.toml.deleted-/../../presets/small.toml"):
        with pytest.raises(ProfileError, match="no longer there"):
            store.bring_back(wrong)


def test_only_the_last_ones_that_were_put_away_are_kept(store: ProfileStore, tmp_path: Path) -> None:
    tokens = []
    for number in range(25):
        store.copy("small", f"p{24 - number}")
        tokens.append(store.put_away(f"p{24 - number}"))
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == sorted(tokens[5:])


def test_a_free_name_is_a_good_one_that_nobody_has(store: ProfileStore) -> None:
    assert store.free_name("other") == "other"
    assert store.free_name("small") == "small-2"
    store.copy("small", "small-2")
    assert store.free_name("small") == "small-3"
    assert store.free_name("  ä b!") == "b"
    assert store.free_name("ä") == "profile"
    store.copy("small", store.free_name("x" * 90))
    store.copy("small", store.free_name("x" * 90))
