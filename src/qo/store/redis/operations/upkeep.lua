-- upkeep: what time does to jobs that wait, and the removal of what is past its retention.
--
-- Arguments  aging_period_ms; unconfirmed_after_ms, unconfirmed_error; reminder_ages_ms, in ascending order; keep, with
--            ms, jobs, events and audit. What is missing is left out
-- Answers    the jobs that aged, failed and were forgotten; the reminders; whether there is more
-- Events     aged; failed
-- flags allow-oom
-- include lib/aging.lua
-- include lib/confirming.lua
-- include lib/forgetting.lua

share.begin()
local done = {}
if arguments.aging_period_ms then
  done.aged = aging.run(arguments.aging_period_ms)
end
if arguments.unconfirmed_after_ms then
  done.failed = confirming.fail(arguments.unconfirmed_after_ms, arguments.unconfirmed_error)
end
if arguments.reminder_ages_ms then
  done.reminders = confirming.remind(arguments.reminder_ages_ms)
end
if arguments.keep then
  done.forgotten = forgetting.run(arguments.keep)
end
hand_over()
done.more = share.more()
return step.answer(done)
