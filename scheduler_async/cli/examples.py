"""The examples at the end of each `--help`."""

from __future__ import annotations

EXAMPLES = {
    "add": (
        "scheduler-async add backup './backup.sh' --cron '0 3 * * *' --priority high",
        "scheduler-async add sync 'python sync.py' --every 15m --timeout 5m --retries 3",
        "scheduler-async add pay ./pay --cron '0 9 1 * *' --on 'weekdays:MON-FRI'",
        "scheduler-async add reminder 'notify-send Lunch' --at 2099-06-15T12:00",
    ),
    "edit": (
        "scheduler-async edit backup --cron '30 3 * * *'",
        "scheduler-async edit backup --on 'weekdays:MON-FRI & ~holidays:SE'",
        "scheduler-async edit sync 'python sync.py --full' --timeout none --env LANG=C",
    ),
    "remove": ("scheduler-async remove backup", "scheduler-async remove tenant/backup"),
    "pause": ("scheduler-async pause backup", "scheduler-async pause tenant/backup --until 18:00 --reason 'disk swap'"),
    "resume": ("scheduler-async resume backup", "scheduler-async resume tenant/backup"),
    "status": ("scheduler-async status", "scheduler-async status --watch --store jobs.db"),
    "list": (
        "scheduler-async list",
        "scheduler-async list --due --priority high",
        "scheduler-async list --watch --namespace tenant",
    ),
    "show": ("scheduler-async show backup", "scheduler-async show tenant/backup --json"),
    "log": (
        "scheduler-async log",
        "scheduler-async log backup --limit 3 --output",
        "scheduler-async log --since 2h --failed --traceback",
        "scheduler-async log --follow",
    ),
    "stats": ("scheduler-async stats", "scheduler-async stats backup --json"),
    "changes": (
        "scheduler-async changes",
        "scheduler-async changes backup --since 7d",
    ),
    "preview": ("scheduler-async preview", "scheduler-async preview --window 1d"),
    "explain": (
        "scheduler-async explain backup",
        "scheduler-async explain backup --at 03:00",
        "scheduler-async explain tenant/backup --at 'yesterday 03:00' --tz UTC",
    ),
    "nodes": ("scheduler-async nodes", "scheduler-async nodes --store jobs.db"),
    "next": (
        "scheduler-async next '0 9 * * 1-5' --tz Europe/Stockholm",
        "scheduler-async next 'every 5m' -n 3",
        "scheduler-async next '0 9 L * *' --on business-days:SE --otherwise before",
    ),
    "copy": (
        "scheduler-async copy scheduler.db backup.db",
        "scheduler-async copy scheduler.db postgresql://localhost/jobs",
    ),
    "trigger": (
        "scheduler-async trigger backup",
        "scheduler-async trigger report --app myapp:scheduler",
        'scheduler-async trigger report --anywhere --payload \'{"to": "ops"}\'',
    ),
    "backfill": (
        "scheduler-async backfill report 2026-06-01 2026-07-01",
        "scheduler-async backfill report 2026-06-01 2026-06-02 --tz UTC --jobs 4",
    ),
    "cancel": (
        "scheduler-async cancel 4711",
        "scheduler-async cancel 4711 --reason 'wrong input'",
    ),
    "cron": (
        "scheduler-async cron",
        "scheduler-async cron --jobs 4 --store /var/lib/jobs.db",
        "* * * * * scheduler-async cron   # in a crontab",
    ),
    "run": (
        "scheduler-async run",
        "scheduler-async run --jobs 4 --timeout 1m",
        "scheduler-async run myapp:scheduler",
    ),
    "web": (
        "scheduler-async web",
        "scheduler-async web --store postgresql://me@db/jobs --read-only",
        "scheduler-async web --uds ./jobs.sock --allow-host jobs.example.com",
    ),
}
