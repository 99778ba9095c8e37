-- Claiming for one worker: the first jobs in line whose every group has a free slot beside those that turns keep.
--
-- No scan: jobs that are known to be blocked are not candidates, so a claim costs only the jobs that it takes
-- and those that it finds blocked for the first time.
-- include lib/hand_over.lua
-- include lib/passing.lua
-- include lib/answer.lua
-- exports claiming

local claiming = {}

local function without_repetitions(names)
  local once, is_known = {}, {}
  for _, name in ipairs(names) do
    if not is_known[name] then
      is_known[name] = true
      once[#once + 1] = name
    end
  end
  return once
end

local function passes(task)
  return not groups.gates_open(task)
end

function claiming.take(worker, task_names, capacity, lease_ms, claim)
  -- Returns the jobs taken, whether another claim may find more, and the bytes of its reply.
  local all = walk.over(without_repetitions(task_names), capacity)
  local taken, late, examined, taken_bytes, more = {}, {}, 0, 0, false
  while #taken < capacity do
    if examined >= step.bounds.examine or taken_bytes >= step.bounds.claim_bytes then
      more = walk.first(all, passes) ~= nil
      break
    end
    local _, number = walk.next(all, passes)
    if not number then
      break
    end
    local row = rows.get(number)
    local wanted = tasks.groups_of(row)
    examined = examined + groups.looks(wanted)
    local is_late = overdue.is(row)
    local blocked_by = not is_late and groups.first_without_room(wanted, GATES + 1, row.key)
    if is_late then
      overdue.fail(row)
      late[#late + 1] = row
    elseif blocked_by then
      line.park(row, blocked_by)
      passing.note_aside(row)
    else
      local held = lease.claim_job(row, wanted, worker, claim, lease_ms)
      taken[#taken + 1] = { row = row, held = held, expires_at = step.now + lease_ms }
      taken_bytes = taken_bytes + rows.size(row)
      passing.note_taker(row.key, wanted)
    end
  end
  passing.end_walk()
  more = overdue.give_quota_back(late) or more
  hand_over()
  return taken, more, taken_bytes
end

local function is_claimable(task)
  if kept.count() == 0 then
    return call('EXISTS', written(key('ready:', task)), written(key('open:', task))) > 0
  end
  local gate = groups.get(task)
  local ready = call('ZRANGE', written(key('ready:', task)), 0, 0, 'WITHSCORES')
  if ready[1] and groups.has_room_for(gate, tonumber(ready[2])) then
    return true
  end
  -- All of these groups have a free slot. It may be kept in as many as that.
  local open = call('ZRANGE', written(key('open:', task)), 0, kept.count(), 'WITHSCORES')
  for i = 1, #open, 2 do
    local order_key = tonumber(open[i + 1])
    if groups.has_room_for(gate, order_key) and groups.has_room_for(groups.get(open[i]), order_key) then
      return true
    end
  end
  return false
end

function claiming.might_find(task_names)
  -- Whether a claim for these tasks would have something to look at.
  if line.length() == 0 then
    return false
  end
  kept.begin()
  local found = false
  for _, task in ipairs(task_names) do
    found = found or groups.gates_open(task) and is_claimable(task)
  end
  kept.forget()
  return found
end

function claiming.taken_before(claim)
  -- The jobs that this claim has taken and still holds.
  local taken = {}
  for i, token in ipairs(lease.of_claim(claim)) do
    local held = lease.get(token)
    taken[i] = { row = rows.get(held.job), held = held, expires_at = lease.end_on_the_clock(token) }
  end
  return taken
end

function claiming.leases(taken)
  -- The leases as they are in a reply.
  local numbers, leases = {}, {}
  for i, each in ipairs(taken) do
    numbers[i] = each.row.number
  end
  local payloads, checkpoints = rows.contents(numbers)
  for i, each in ipairs(taken) do
    leases[i] = answer.lease(each.row, each.held, each.expires_at, payloads[i], checkpoints[i])
  end
  return leases
end
