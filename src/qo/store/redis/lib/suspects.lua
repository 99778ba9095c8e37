-- Suspects: jobs whose lease ran out. The rules are in `policy/suspects.py`.
--
-- A counter has the number of suspects that wait or run. Where it is 0, nothing about them is read.
-- include lib/rows.lua
-- exports suspects

local suspects = {}
local were_there -- whether there were any before this step changed their number; nil while it has not

at_the_beginning[#at_the_beginning + 1] = function()
  were_there = nil
end

function suspects.are_there()
  return step.counter('suspects') > 0
end

function suspects.were_there()
  -- When the step began.
  if were_there == nil then
    return suspects.are_there()
  end
  return were_there
end

local function count(change)
  were_there = suspects.were_there()
  step.set_counter('suspects', step.counter('suspects') + change)
end

function suspects.suspect(row)
  -- The job waits, and may have ended the process that ran it last: `suspicion_of` in `policy/suspects.py`.
  if not row.suspicion then
    count(1)
  end
  row.suspicion = (row.attempts or 0) + 1 >= row.max_attempts and LAST_SUSPECT or SUSPECT
  rows.save(row)
end

function suspects.clear(row)
  -- The job waits, runs or has just ended, and is no suspect.
  if row.suspicion then
    count(-1)
    row.suspicion = nil
    rows.save(row)
  end
end

function suspects.keep_in_mind(row)
  -- The job has failed as a suspect. It is one again if it is retried.
  row.suspicion = SUSPECT
  rows.save(row)
end

function suspects.suspect_again(row)
  -- A failed job waits again.
  if row.suspicion then
    row.suspicion = nil
    suspects.suspect(row)
  end
end
