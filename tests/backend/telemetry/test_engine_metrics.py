"""Pages of metrics -> readings: every recorded page, old names, and pages that cannot be trusted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.telemetry.engine_metrics import EngineReading, Metric, parse
from tests.fakes import metric_pages as pages

LOAD = pages.recorded("v0.32_spec_load.txt")
TWO_ENGINES = pages.recorded("v0.32_spec_dp2.txt")


def read(page: str) -> EngineReading:
    reading = parse(page)
    assert reading is not None
    return reading


def total(page: str, metric: Metric) -> float:
    return sum(read(page).counters[metric].values.values())


@pytest.mark.parametrize("name", pages.RECORDED)
def test_every_recorded_page_is_read(name: str) -> None:
    page = pages.recorded(name)
    reading = read(page)
    for metric, wire in (
        (Metric.GENERATION_TOKENS, pages.COUNTERS["generation"]),
        (Metric.PROMPT_TOKENS, pages.COUNTERS["prompt"]),
        (Metric.STEPS, pages.COUNTERS["steps"]),
        (Metric.TTFT_BUCKETS, pages.TTFT),
        (Metric.ITL_BUCKETS, pages.ITL),
        (Metric.PREFIX_CACHE_HITS, "vllm:prefix_cache_hits_total"),
        (Metric.ESTIMATED_READ_BYTES, "vllm:estimated_read_bytes_per_gpu_total"),
    ):
        assert reading.counters[metric].values == pages.series(page, wire)
    gauges = pages.gauges(page)
    assert reading.kv_cache_usage_ratio == gauges["kv_cache_usage_ratio"]
    assert reading.requests_running == gauges["requests_running"]
    assert reading.requests_waiting == gauges["requests_waiting"]
    assert reading.waiting_by_reason == {"capacity": 0.0, "deferred": 0.0}
    assert reading.speculates == ("nospec" not in name)
    assert reading.engines == ({"0", "1"} if "dp2" in name else {"0"})
    assert reading.kv_cache_tokens == (2_097_152 if "nospec" in name else 524_288)
    assert reading.process_start_s == pages.series(page, "process_start_time_seconds")[()]


def test_created_samples_are_no_counts() -> None:
    assert all("created" not in series.name for series in read(LOAD).counters.values())


def test_room_in_the_cache_is_told_in_tokens_or_in_blocks() -> None:
    def room(*engines: str) -> float | None:
        lines = "".join(f'vllm:cache_config_info{{engine="{n}",{labels}}} 1.0\n' for n, labels in enumerate(engines))
        return read(lines + "vllm:generation_tokens_total 1.0\n").kv_cache_tokens

    assert room('block_size="16",num_gpu_blocks="1000",kv_cache_size_tokens="9000"') == 9000
    assert room('block_size="16",num_gpu_blocks="1000",effective_attention_block_size="32"') == 16_000
    assert room('block_size="16",num_gpu_blocks="1000"', 'block_size="16",num_gpu_blocks="500"') == 12_000
    assert room('block_size="16",num_gpu_blocks="None"') is None
    assert room('block_size="16",num_gpu_blocks="1000"', 'block_size="16"') is None
    assert read("vllm:generation_tokens_total 1.0\n").kv_cache_tokens is None


def test_gauges_of_two_engines() -> None:
    page = pages.with_gauges(
        TWO_ENGINES,
        kv_cache_usage_perc_0=0.25,
        kv_cache_usage_perc_1=0.75,
        num_requests_running_0=3.0,
        num_requests_running_1=4.0,
        num_requests_waiting_1=2.0,
    )
    reading = read(page)
    assert reading.kv_cache_usage_ratio == 0.5
    assert reading.requests_running == 7
    assert reading.requests_waiting == 2


def test_gauges_with_a_pid_take_the_largest_of_each_engine() -> None:
    page = "".join(
        f'vllm:{name}{{engine="{engine}",pid="{pid}"}} {value}\n'
        for name, values in (
            ("kv_cache_usage_perc", {("0", "11"): 0.0, ("0", "12"): 0.5, ("1", "11"): 0.1, ("1", "12"): 0.0}),
            ("num_requests_running", {("0", "11"): 3, ("0", "12"): 0, ("1", "11"): 0, ("1", "12"): 4}),
        )
        for (engine, pid), value in values.items()
    )
    reading = read(page)
    assert reading.kv_cache_usage_ratio == (0.5 + 0.1) / 2
    assert reading.requests_running == 7


@pytest.mark.parametrize("version", pages.OLDER)
def test_older_names_give_the_same_reading(version: str) -> None:
    page = pages.older(TWO_ENGINES, version)
    new, old = read(TWO_ENGINES), read(page)
    shared = new.counters.keys() & old.counters.keys()
    assert {metric: new.counters[metric].values for metric in shared} == {
        metric: old.counters[metric].values for metric in shared
    }
    assert {
        Metric.ITL_BUCKETS,
        Metric.PREFIX_CACHE_HITS,
        Metric.ACCEPTED_AT_POSITION,
    } <= shared
    assert old.kv_cache_usage_ratio == new.kv_cache_usage_ratio
    assert (version == "0.8.5") == ("vllm:kv_cache_usage_perc" not in page)


def test_of_two_names_the_new_one_is_used_alone() -> None:
    page = pages.both_names(pages.with_gauges(LOAD, kv_cache_usage_perc_0=0.5))
    assert "vllm:gpu_cache_usage_perc" in page
    assert "77777.0" in page
    assert read(page).kv_cache_usage_ratio == 0.5
    assert read(page).counters[Metric.ITL_BUCKETS].values == pages.series(LOAD, pages.ITL)


@pytest.mark.parametrize(
    "page",
    [
        "",
        "\n\n",
        "# EOF\n",
        "<html><body>502 Bad Gateway</body></html>",
        "<html>\nvllm:generation_tokens_total went away\n</html>\n",
        '{"error": "not found"}',
        "process_start_time_seconds 1.0\nhttp_requests_total 4.0\n",
        'vllm:generation_tokens_total{engine="0"} many\n',
        'vllm:generation_tokens_total{engine="0" 5.0\n',
        'vllm:generation_tokens_total{engine="0"}\n',
        'vllm:generation_tokens_total{engine="0",engine="1"} 5.0\n',
        'vllm:generation_tokens_total{engine="0"} ' + "9" * 400 + "\n",
        'vllm:generation_tokens_total{engine="' + "\\" * 20_000 + '"} 5.0\n',
        "\x00\xff\ufffd" * 100,
    ],
)
def test_what_is_no_page_of_an_engine_is_unreadable(page: str) -> None:
    assert parse(page) is None


def test_a_huge_page_is_unreadable() -> None:
    assert parse(LOAD + "# padding\n" * 4_000_000) is None


def test_a_last_line_without_line_feed_is_read() -> None:
    assert read('vllm:num_requests_running{engine="0"} 12').requests_running == 12
    assert parse(LOAD + "# EOF") == parse(LOAD)


@given(at=st.integers(0, len(LOAD) - 1))
def test_a_page_that_was_cut_off_never_gives_wrong_values(at: int) -> None:
    whole, cut = read(LOAD), parse(LOAD[:at])
    if cut is None:
        return
    # A cut between "4" and "2.0" of a float leaves no trace but a number without a fraction, seen as a cut.
    for metric, series in cut.counters.items():
        assert series.values.items() <= whole.counters[metric].values.items(), LOAD[:at][-80:]
    assert cut.requests_running in (None, whole.requests_running)


def test_a_page_that_was_cut_in_a_number_is_unreadable() -> None:
    at = LOAD.index("vllm:generation_tokens_total{")
    line = LOAD[at : LOAD.index("\n", at)]
    assert line.endswith(".0")
    for missing in range(1, len(line)):
        assert parse(LOAD[: at + len(line) - missing]) is None, line[:-missing]


@pytest.mark.parametrize("value", ["NaN", "-1.0", "+Inf", "-Inf", "1e301"])
def test_an_impossible_value_spoils_its_own_metric_only(value: str) -> None:
    page = TWO_ENGINES
    for name in ("vllm:generation_tokens_total", "vllm:kv_cache_usage_perc"):
        at = page.index(name + '{engine="1"')
        end = page.index("\n", at)
        page = page[: page.rindex(" ", at, end)] + f" {value}" + page[end:]
    reading = read(page)
    assert Metric.GENERATION_TOKENS not in reading.counters
    assert reading.kv_cache_usage_ratio is None
    assert total(page, Metric.PROMPT_TOKENS) == total(TWO_ENGINES, Metric.PROMPT_TOKENS)
    assert reading.requests_running == 0
    assert reading.engines == {"0", "1"}


@given(
    st.one_of(
        st.text(),
        st.lists(
            st.sampled_from(LOAD.splitlines()[100:200]).flatmap(
                lambda line: st.integers(0, len(line)).map(lambda at: line[:at] + line[at + 1 :])
            )
        ).map("\n".join),
        st.text(alphabet='vllm:num_requests_running{}"\\=,. \t1e+#').map("vllm:num_requests_running{".__add__),
    )
)
def test_no_text_raises(text: str) -> None:
    reading = parse(text)
    if reading is not None and reading.requests_running is not None:
        assert math.isfinite(reading.requests_running)
        assert reading.requests_running >= 0


def test_windows_line_ends_and_indented_lines_are_read() -> None:
    assert parse(LOAD.replace("\n", "\r\n")) == parse(LOAD)
    assert parse("\n".join("  " + line for line in LOAD.splitlines()) + "\n") == parse(LOAD)


def test_counters_without_total_are_read() -> None:
    page = 'vllm:generation_tokens{engine="0"} 5.0\nvllm:generation_tokens_created{engine="0"} 1e9\n'
    assert total(page, Metric.GENERATION_TOKENS) == 5
