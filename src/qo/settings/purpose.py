"""What each setting is for, one sentence a key: `qo init` writes it above the key."""

from __future__ import annotations

PURPOSES = {
    "store.url": (
        "Where jobs and limits are kept: sqlite:///path (relative to this file), redis://host:6379/0 or memory://."
    ),
    "store.namespace": "The name of this queue on its store; queues with different names share nothing.",
    "store.accept_eviction": (
        "Whether qo may use a Redis server that deletes keys when its memory is full, and so may lose jobs."
    ),
    "concurrency.default_lease_duration_secs": (
        "A job's slots are freed this many seconds after its worker last renewed the lease."
    ),
    "concurrency.renewals_per_lease": "A worker renews its leases this many times in that duration.",
    "concurrency.semaphore_lease_duration_secs": (
        "A slot of user_semaphore or project_semaphore is freed this many seconds after its last heartbeat."
    ),
    "concurrency.store": "The bucket (s3://name/prefix) that keeps the slots of shared_groups for several queues.",
    "concurrency.shared_groups": "The groups whose slots are kept in that bucket instead of in the queue's own store.",
    "concurrency.limits": (
        'How many slots a group has: a task by its name, "provider:ollama", one of your own, or global for all jobs.'
    ),
    "tiers.per_user": "At most this many jobs of one user run at once.",
    "tiers.per_project": "At most this many jobs of one project run at once.",
    "tiers.jobs_per_day": "A user may start this many jobs a day; further jobs are scheduled for a later day.",
    "tiers.boost": "A job joins the line this many places ahead of where it would stand without a boost.",
    "tiers.iterations": "After this many iterations a job asks a person whether to go on.",
    "tiers.iteration_batches": "A job fails when it has used up this many batches of iterations.",
    "tiers.first_guess_secs": "Estimates assume that a job runs this many seconds, until the first one has ended.",
    "queue.cap": "A submit is refused while this many jobs, or more, are in line.",
    "queue.cap_applies_to": "The cap refuses only submits that carry a tier (tiered), or all submits (all).",
    "queue.retry_after_step_secs": (
        "A refused submit names the time after which to try again, rounded up to a multiple of this many seconds."
    ),
    "queue.quota_jitter_secs": (
        "Jobs over the daily quota join the line at random times within this many seconds after midnight UTC."
    ),
    "queue.default_priority": "The priority of a job that is submitted without one.",
    "queue.aging_period_secs": (
        "Each time a job has waited this many seconds, it moves up one level of priority; 0 turns aging off."
    ),
    "queue.turn_after": (
        "A job or caller that was passed this many times has the next free slots of its groups kept; 0 turns it off."
    ),
    "queue.max_payload_bytes": "A submit is refused when its data is larger than this many bytes of JSON.",
    "queue.retention_days": (
        "Jobs that have ended are deleted after this many days. Unset, the store decides: 7 days, on Redis 1 day."
    ),
    "queue.retention_jobs": "At most this many ended jobs are kept; the oldest are deleted first.",
    "queue.audit_entries": (
        "The audit trail keeps this many of its newest entries. Unset, the store decides: 1000000, on Redis 100000."
    ),
    "queue.upgrade_url": "The address of a page that sells higher tiers; users see it beside their position in line.",
    "retries.max_attempts": "A job is tried at most this many times.",
    "retries.first_delay_secs": "A job that failed for the first time is tried again after this many seconds.",
    "retries.delay_multiplier": "The delay is multiplied by this number after each further failure.",
    "retries.max_delay_secs": "The delay never grows beyond this many seconds.",
    "retries.jitter": (
        "Each delay is made longer or shorter at random, by at most this share, so that jobs do not come back together."
    ),
    "worker.concurrency": "One worker runs at most this many jobs at once.",
    "worker.grace_secs": (
        "A stopping worker gives its running jobs this many seconds, then hands them back to the line."
    ),
    "worker.processes": (
        "One worker runs at most this many jobs of tasks with process=True at once. Unset, one for each processor."
    ),
    "worker.jobs_per_process": "Each of these processes is replaced by a new one after this many jobs.",
    "confirmation.expires_after_hours": "A job that waits for a confirmation fails after this many hours.",
    "confirmation.reminders_after_hours": (
        "A reminder is sent each time a job has waited this many hours for its confirmation."
    ),
    "estimate.newest_weight": (
        "The newest run counts with this weight in the average duration, all earlier ones with the rest."
    ),
    "estimate.first_guess_secs": (
        "Estimates assume that a job without a tier runs this many seconds, until the first one has ended."
    ),
    "estimate.spread": "The bounds of a base estimate are this share below and above it.",
    "estimate.medium_confidence_below_position": (
        "Estimates for positions in line below this number have medium confidence, all others low."
    ),
    "estimate.learnt_coverage": "The learnt bounds are made so wide that this share of jobs start inside them.",
    "limiter.waiter_alive_secs": (
        "A caller that waits for a slot loses its place in line this many seconds after its process stopped."
    ),
    "limiter.env_defaults": "The limits that Limiter.from_env() uses where LLM_MAX_CONCURRENCY_<NAME> is not set.",
    "stream.position_every_secs": (
        "A watched job's position is sent at least once in this many seconds while it is in line."
    ),
    "stream.heartbeat_every_secs": (
        "A stream sends a comment each time this many seconds have passed, so that proxies keep it open."
    ),
    "server.host": "The address that the service listens at. Any but this machine's own demands API keys.",
    "server.port": "The port that the service listens at.",
    "server.public_url": (
        "The address under which browsers reach the service; watch links and webhooks begin with it."
    ),
    "server.hosts": "The names under which the service may be called, beside localhost and IP addresses.",
    "server.trusted_proxies": "The proxies whose X-Forwarded-For header says where a request came from.",
    "server.cors_origins": "The sites whose pages may call the service with a key.",
    "server.widget_origins": "The sites whose pages may show watch links and the widget.",
    "server.user_tasks": "The tasks that the key of a user may submit.",
    "server.user_best_priority": "The best priority that the key of a user may give a job.",
    "server.default_tier": "The tier of users who submit with a key of their own and were given no tier.",
    "server.watch_link_days": "A watch link works for this many days.",
    "history.url": (
        "The PostgreSQL database that keeps the history of a queue on Redis: postgresql://user:password@host/database."
    ),
    "history.keep_days": "Months of the history are deleted when all of their days are older than this many days.",
    "history.payloads": "Whether the history has the data and the results of jobs.",
    "history.on_full": (
        "While outbox_max records wait for the recorder, submits are refused (refuse), or records are dropped (drop)."
    ),
    "history.outbox_max": "So many records may wait in Redis for the recorder.",
    "notify.webhook_url": "The address to which reminders are sent by HTTP POST.",
    "notify.webhook_secret": "The secret that signs webhook calls (HMAC-SHA256).",
    "notify.email_to": "The e-mail addresses that receive reminders about jobs without a contact.",
    "notify.email_from": "The sender's address of e-mail reminders.",
    "notify.smtp_url": "The mail server: smtp://user:password@host:587 or smtps://user:password@host:465.",
    "notify.timeout_secs": "One attempt to send a reminder is given up after this many seconds.",
    "notify.attempts": "A reminder that could not be sent is tried at most this many times.",
}
"""The keys are `section.key`; the keys of all tiers stand here once, as `tiers.key`. Which values a key accepts is in
its type (`sections`)."""
