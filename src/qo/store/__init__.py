"""Where state lives: the contract of all stores, and the stores.

These rules hold for all operations:

room        A group has room when it is not paused, not closed, and has no limit or fewer holders than its limit. A
            holder counts until a step ends its lease, also when the lease has run out by the clock.
slots       A holder has one slot number in each group it is recorded in: the lowest free one. A job is recorded in all
            its groups, but in `global`, its task's group and its `priority:` group only while they have a limit. When
            such a group gets its first limit, the job leases that began in it are recorded then, in token order; the
            groups at the time of the claim count, whatever has changed since. A caller is recorded in every group it
            names. A number lasts until it is released, also when the limit is removed or set below it.
gates       `global` and a task's own group are gates. While a gate has no room for a job, it is not looked at.
lanes       Jobs in line with the same task, priority, user, project, tier, parent and own groups form a lane, ordered
            by their keys. They need the same groups, so while the first one is blocked, all behind it are blocked by
            the same group. A lane is ready, or parked in one group. It stays there when its first job leaves, under
            the key of the next one. A lane without jobs is gone at once.
entering    A job enters the line when it becomes queued, and again when its key or its groups change while it is
            queued. It joins its lane. If it is the first one there, the lane is looked at: it is parked in the first
            of the job's groups, without the gates, that has no room. If all have room, it is ready. To be parked in
            another group than before counts as one rejection there, however many jobs the lane has.
passed      A walk is the examining by a claim or by a hand-over. At its end these are counted as passed. Each one that
            was put aside: once. Of the lanes that are then parked in a group with a limit in which the
            walk took slots, the first one of each task, suspects and last suspects apart, and of the callers: once for
            each of these slots that was taken by a job or caller behind it. The count begins anew when a job starts,
            leaves the line, or is moved or given another priority by a person.
turns       A job or caller that was passed `turn_after` times (a number of the worker that registered last, or
            DEFAULT_TURN_AFTER; 0 switches turns off) takes a turn at the end of the walk that passed it, the first in
            line first. It has the turn until its count begins anew. At most `bounds.turns` have one, with
            `bounds.turn_groups` different groups in all, `global` not counted. Where there is no room for another, the
            turns that keep nothing end, the last in line first, for one that would keep something. Otherwise the job
            takes its turn when it is passed again.
kept        A job's near groups are its task's and its `user:`, `project:`, `tier:` and `parent:` groups; all others
            except `global` are far. A caller has far groups only. In the order of the line, each turn asks for a slot
            of its near groups that have a limit, and of its far ones too while its near groups all have room for it. It
            asks for nothing while one of its groups is paused, closed or has a limit of 0, while no live worker handles
            its task, or when it is overdue. However many ask, one slot of a group is kept, for the first of them. Which
            slots are asked for is worked out when a walk begins; what gets its slots in the walk, or has them reserved,
            asks no longer.
room for    A group has room for a job or caller when it has room, also counting as held the slot that is kept for one
            before it.
portions    One step deals with `Bounds.portion` leases, overdue jobs, due jobs or aged jobs. A lease, due job or aged
            job with more than eight groups counts as several (`values.looks`).
joining     A job that joins the line gets the next place (`ordering.drawn_place`), `joined_at` and
            `position_original`. Jobs that join in one step because they are due or released do so by
            `ordering.joining_order`. A job that comes back keeps its key.
examining   The candidates of a task are the first jobs of its ready lanes, and of the lanes parked in a group that has
            room for them. The candidate with the smallest key is examined first. If one of its groups has no room for
            it, its lane is parked in the first such group, which counts as one rejection there. A job or caller counts
            one look for each eight groups begun towards `bounds.examine`; the first one is examined whatever it counts.
suspects    `policy/suspects.py` has the rules of suspects and of last suspects. Each kind has lanes of its own.
callers     Waiting callers (tickets) are examined like jobs of a task without gates. Those that ask for the same groups
            in the same order form a lane. At the end of every step that writes, free slots are handed over to them:
            see `acquire`.
noting      `claim`, `renew`, `acquire` and `catch_up` note the time when they begin. L is the `lease_ms` of the worker
            that registered last, or DEFAULT_LEASE_MS. A gap is more than L/2 since the time noted before: the store was
            away, or its clock jumped.
counted     Leases and tickets end on counted time: the store's clock without the gaps that do not count. A gap does not
            count if a lease was renewed since the gap before, or if there was no gap before. Otherwise it counts, but
            not for leases that began since the gap before. A renewal that ends a gap is no such renewal if its lease
            is longer than 3/2 L: that much time may pass between two of its renewals anyway.
            So a holder that renews in time keeps its lease through any outages. A dead holder's lease ends at the
            latest when the second gap shows that nothing renews.
steady      Spans (`delay_ms`, `start_within_ms`, `retry_after_ms`, closed groups) end on steady time: the store's clock
            without its falls. A fall is more than L back from the time noted before. It counts neither in steady nor in
            counted time. A time that a caller gave is a time on the store's clock, whatever the clock does.
overdue     A job that has never started fails at its `start_by`; none starts late. `policy/start_by.py` has the rule.
order       Operations that one event loop begins take effect in that order, also when their callers no longer wait for
            the answers. Only `renew` may come earlier. A cancelled one takes effect in its place, or not at all.
"""
