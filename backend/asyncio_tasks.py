"""What asyncio lacks: telling apart who was cancelled."""

import asyncio


def is_cancelled() -> bool:
    """Whether the current task itself is to end, rather than what it waited for; inside `except CancelledError`."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
