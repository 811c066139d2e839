"""What matters most, once more on uvloop: the loop, its clock, runs and their ends, limits, crashes, signals."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
import uvloop

from scheduler_async import Outcome

# ruff: noqa: F401 - they are imported to be run
from tests.cast import line_of
from tests.engine.test_processes import test_a_run_whose_process_was_killed_is_run_again_at_the_next_start
from tests.engine.test_rulings import (
    test_a_job_does_not_overlap_itself,
    test_a_job_goes_when_its_handler_arrives,
    test_a_job_runs_once_at_a_time_across_schedulers_that_share_a_store,
    test_a_jump_of_more_than_a_second_is_an_event,
    test_a_missed_run_is_made_up_for_after_a_restart,
    test_a_removed_run_is_cancelled_and_writes_nothing,
    test_a_run_that_outlives_its_lease_is_cancelled_and_writes_nothing,
    test_a_running_scheduler_notices_a_dead_neighbour_on_this_host_at_once,
    test_a_timeout_cancels_the_run_and_is_a_failure,
    test_every_occurrence_is_accounted_for,
    test_failures_back_off_and_disable_the_job_after_five,
    test_groups_have_limits,
    test_no_occurrence_runs_twice_however_the_clock_jumps,
    test_over_a_limit_a_job_stays_due_and_goes_as_soon_as_a_slot_frees,
    test_the_claim_is_committed_before_the_handler_starts,
    test_the_loop_survives_a_raising_handler,
    test_the_loop_survives_a_store_that_fails_for_a_while,
    test_the_queue_bounds_what_is_claimed_beyond_the_slots,
)
from tests.running.test_watchdog import complaints, test_a_handler_that_blocks_is_named
from tests.test_from_thread import test_a_thread_adds_triggers_and_reads
from tests.test_real_awaits import (
    test_it_does_not_wait_for_what_a_test_releases,
    test_it_waits_for_a_plain_function,
    test_it_waits_for_something_real,
)
from tests.test_scheduler import (
    test_a_plain_function_runs_in_a_thread,
    test_no_run_begins_after_stop,
    test_runs_are_told,
    test_stop_waits_for_runs,
    test_stop_with_cancel_ends_runs_and_logs_them,
    test_the_current_run_is_known_below_the_handler,
)
from tests.test_signals import STUBBORN, end_of, program, rows_of

ON_UVLOOP = "import uvloop; uvloop.run(main())"


async def test_these_tests_run_on_uvloop() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_the_first_signal_lets_runs_finish_and_the_second_cancels_them(
    path: Path, number: signal.Signals
) -> None:
    with program(path, before=STUBBORN, timeout="None", around=ON_UVLOOP) as process:
        for _ in range(2):
            assert await asyncio.to_thread(line_of, process) == "running"

        process.send_signal(number)
        assert await asyncio.to_thread(line_of, process) == "told"
        process.send_signal(number)

        assert await end_of(process) == (0, "stopped\n", "")
    outcomes = {row.job_id: row.outcome for row in await rows_of(path)}
    assert outcomes == {"patient": Outcome.SUCCESS, "stubborn": Outcome.CANCELLED}
