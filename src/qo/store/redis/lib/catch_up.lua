-- Everything that is due: note the time, open closed groups, end tickets and leases, fail overdue jobs, let due jobs join
-- the line.
-- include lib/hand_over.lua
-- exports catch_up

local catch_up = {}

-- --- the clock ------------------------------------------------------------------------------------------------

local function add_to(counter, passed)
  step.set_counter(counter, step.counter(counter) + passed)
end

local function spare_new_leases(passed)
  -- Leases from before the last gap were not renewed since, so for them this gap counts. Leases that began after it
  -- may not have been due for a renewal yet. They are few: none is older than a third of a lease.
  local leases = call('ZRANGE', written(key('expiry')), 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    if tonumber(leases[i]) > step.counter('token_at_gap') then
      step.comes('expiry', tonumber(leases[i + 1]) + passed, leases[i])
    end
  end
end

local function note_gap(passed)
  if step.counter('renewed_since_gap') then
    add_to('uncounted_ms', passed)
  else
    spare_new_leases(passed)
  end
  step.set_counter('renewed_since_gap', false)
  step.set_counter('token_at_gap', step.counter('last_token'))
end

function catch_up.note_time()
  -- Note the present time, and return whether a gap has just ended.
  local noted_at, lease_ms = step.counter('noted_at'), step.counter('lease_ms')
  local ends_gap = false
  if noted_at then
    local passed = step.now - noted_at
    ends_gap = passed * 2 > lease_ms
    if ends_gap then
      note_gap(passed)
    elseif passed < -lease_ms then
      add_to('uncounted_ms', passed)
      add_to('fallen_ms', passed)
    end
  end
  step.set_counter('noted_at', step.now)
  return ends_gap
end

function catch_up.note_renewal(renewed_ms, ends_gap)
  -- A lease was renewed, so the next gap counts for no lease: a live holder could not renew in it. A long lease may be
  -- renewed so seldom that each time is a gap; it does not count, or no lease would ever run out.
  local is_long = renewed_ms * 2 > step.counter('lease_ms') * 3
  if not (ends_gap and is_long) and not step.counter('renewed_since_gap') then
    step.set_counter('renewed_since_gap', true)
  end
end

-- --- what is due ----------------------------------------------------------------------------------------------

local function add_due(due, found, difference)
  for i = 1, #found, 2 do
    due[#due + 1] = { member = found[i], at = tonumber(found[i + 1]) + difference }
  end
end

function catch_up.join_due()
  -- Jobs that wait for a time and jobs that wait for the end of a span, in one order.
  local due = {}
  add_due(due, step.due_with_times('due'), 0)
  add_due(due, step.due_with_times('spans'), step.counter('fallen_ms'))
  if #due == 0 then
    return {}, true
  end
  table.sort(due, function(a, b)
    if a.at ~= b.at then
      return a.at < b.at
    end
    return comes_before(a.member, b.member)
  end)
  local numbers, ids = {}, {}
  for i = 1, math.min(#due, step.bounds.portion) do
    numbers[i] = line.number_of_due(due[i].member)
  end
  local jobs, counted = rows.of(numbers), 0
  line.look_up_lanes(jobs)
  for i, row in ipairs(jobs) do
    if counted >= step.bounds.portion then
      break
    end
    counted = counted + groups.looks(tasks.groups_of(row))
    line.join(row)
    ids[i] = row.id
  end
  return ids, #ids == #due
end

local function open_closed_groups()
  local found, all = step.due('closed')
  for _, name in ipairs(found) do
    local group = groups.get(name)
    group.closed_until = nil
    groups.store(group)
  end
  return all
end

local function drop_tickets()
  if not tickets.are_there() then
    return true
  end
  local found, all = step.due('ticket_expiry')
  for _, member in ipairs(found) do
    tickets.drop(tickets.get(tickets.holder_of(member)))
  end
  return all
end

local function end_leases()
  local tokens, all = step.due('expiry')
  lease.load(tokens)
  local ended, counted = {}, 0
  for i, token in ipairs(tokens) do
    if counted >= step.bounds.portion then
      all = false
      break
    end
    counted = counted + lease.looks(token)
    ended[i] = token
  end
  return lease.lose(ended, lease.RAN_OUT), all
end

function catch_up.run()
  catch_up.note_time()
  local opened_all = open_closed_groups()
  local dropped_all = drop_tickets()
  local ids, expired_all = end_leases()
  local late, failed_all = overdue.fail_portion()
  local joined, joined_all = catch_up.join_due()
  hand_over()
  for _, more in ipairs({ late, joined }) do
    for _, id in ipairs(more) do
      ids[#ids + 1] = id
    end
  end
  return ids, not (opened_all and dropped_all and expired_all and failed_all and joined_all)
end
