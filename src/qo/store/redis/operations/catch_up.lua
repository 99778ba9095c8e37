-- catch_up: deal with what has come due.
--
-- Arguments  none
-- Answers    the jobs whose lease was over, then the overdue ones, then those that joined; whether there is more
-- Events     lease_lost and the new state of each; failed; queued
-- flags allow-oom
-- include lib/catch_up.lua
-- include lib/wake.lua

local ids, more = catch_up.run()
return step.answer({ ids = ids, more = more })
