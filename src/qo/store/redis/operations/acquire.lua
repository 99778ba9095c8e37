-- acquire: take one slot in each group of a ticket, all or nothing, or wait in line for it.
--
-- Arguments  tickets
-- Answers    what each holder has now
-- Events     granted, for each slot that is handed over to a waiting caller; turn
-- include lib/catch_up.lua
-- include lib/wake.lua

local no_jobs -- that a worker could take; a caller adds none

local function is_alone()
  -- Nobody else waits, neither callers nor jobs that a worker could take first.
  if no_jobs == nil then
    no_jobs = line.length() == 0 or call('EXISTS', key('workers')) == 0
  end
  return no_jobs and not tickets.are_there()
end

local function grant_at_once(wanted)
  -- What standing in line and being the first there comes to, if there is room.
  if groups.first_without_room(wanted.groups, 1) then
    return false
  end
  local order_key = line.order_key(wanted.priority, line.drawn_place(0))
  lease.grant({
    holder = wanted.holder, groups = wanted.groups, worker = wanted.worker, joined_at = step.now,
  }, wanted.lease_ms)
  passing.note_taker(order_key, wanted.groups)
  passing.end_walk()
  return true
end

local function stand_in_line(wanted)
  local known = tickets.get(wanted.holder)
  if known then
    known.wait_ms, known.lease_ms, known.expires_at = wanted.wait_ms, wanted.lease_ms, step.counted_now() + wanted.wait_ms
    tickets.save(known)
    return
  end
  tickets.enter({
    holder = wanted.holder, key = line.order_key(wanted.priority, line.drawn_place(0)), groups = wanted.groups,
    expires_at = step.counted_now() + wanted.wait_ms, lease_ms = wanted.lease_ms, wait_ms = wanted.wait_ms,
    worker = wanted.worker, joined_at = step.now,
  })
end

local function grant_of(holder)
  local token = lease.of_caller(holder)
  if not token then
    return { waiting = tickets.get(holder) ~= nil }
  end
  return { token = token, slots = lease.slots(lease.get(token)), expires_at = lease.end_on_the_clock(token) }
end

if #arguments.tickets > 0 then
  catch_up.run()
end
local asking, holders = {}, {}
for i, wanted in ipairs(arguments.tickets) do
  holders[i] = wanted.holder
end
lease.load_callers(holders)
for _, wanted in ipairs(arguments.tickets) do
  asking[wanted.holder] = true
  if not lease.of_caller(wanted.holder) and not (is_alone() and grant_at_once(wanted)) then
    stand_in_line(wanted)
  end
  if tickets.are_there() then
    hand_over(asking)
  end
  local ticket = wanted.wait_ms == 0 and tickets.get(wanted.holder)
  if ticket then
    tickets.drop(ticket)
  end
end
local answers = {}
for i, wanted in ipairs(arguments.tickets) do
  answers[i] = grant_of(wanted.holder)
end
return step.answer({ answers = answers })
