-- Which jobs and callers have a turn. `store/__init__.py` has the rules; `lib/kept.lua` says which slots turns keep, and
-- `lib/passing.lua` when one begins.
--
-- The row of a job and the ticket of a caller have `passed` and `turn`. The set `turns` lists those with a turn, and the
-- counter of that name says how many, so that steps without turns read nothing more.
-- include lib/rows.lua
-- exports turns

local turns = {}
local JOB, CALLER = 'job:', 'caller:' -- a job's number and a caller's name may be alike
local listed -- the members of the set, as this step sees them
local changes -- how often turns, or what decides which slots they keep, may have changed in this step

at_the_beginning[#at_the_beginning + 1] = function()
  listed, changes = nil, 0
end

function turns.are_there()
  return step.counter('turns') > 0
end

function turns.touch()
  -- Something has changed that decides which slots turns keep, and that no group shows.
  changes = changes + 1
end

function turns.changes()
  return changes
end

local function members()
  if not listed then
    listed = {}
    for _, member in ipairs(call('SMEMBERS', written(key('turns')))) do
      listed[member] = true
    end
  end
  return listed
end

function turns.listed()
  -- The numbers of the jobs, and the names of the callers, that have a turn.
  local numbers, holders = {}, {}
  for member in pairs(turns.are_there() and members() or NONE) do
    if member:sub(1, #JOB) == JOB then
      numbers[#numbers + 1] = member:sub(#JOB + 1)
    else
      holders[#holders + 1] = member:sub(#CALLER + 1)
    end
  end
  return numbers, holders
end

local function member_of(waiting)
  return waiting.number and JOB .. waiting.number or CALLER .. waiting.holder
end

function turns.begin(waiting)
  -- A job or a ticket takes a turn. The calling function saves it.
  waiting.turn = true
  turns.touch()
  members()[member_of(waiting)] = true
  later('SADD', key('turns'), member_of(waiting))
  step.set_counter('turns', step.counter('turns') + 1)
end

function turns.lose(waiting)
  -- The turn ends and the count stays. The calling function saves it.
  waiting.turn = nil
  turns.touch()
  members()[member_of(waiting)] = nil
  later('SREM', key('turns'), member_of(waiting))
  step.set_counter('turns', step.counter('turns') - 1)
end

function turns.begin_anew(waiting)
  -- The count of a job or a ticket begins anew, which ends its turn. The calling function saves it.
  waiting.passed = nil
  if waiting.turn then
    turns.lose(waiting)
  end
end
