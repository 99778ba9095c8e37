-- What has come due: the time is noted, closed groups open, tickets and leases past their end go, due jobs join.
-- include lib/hand_over.lua
-- exports catch_up

local catch_up = {}

-- --- the clock ------------------------------------------------------------------------------------------------

local function shift_deadlines(gap)
  local leases = call('ZRANGE', written(key('expiry')), 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    step.comes('expiry', tonumber(leases[i + 1]) + gap, leases[i])
  end
  local holders = call('HKEYS', written(key('tickets')))
  for _, holder in ipairs(holders) do
    local ticket = tickets.get(holder)
    ticket.expires_at = ticket.expires_at + gap
    tickets.save(ticket)
  end
  for _, name in ipairs(call('ZRANGE', written(key('closed')), 0, -1)) do
    local group = groups.get(name)
    group.closed_until = group.closed_until + gap
    groups.store(group)
  end
  step.set_counter('no_expiry_before', step.counter('no_expiry_before') + gap)
end

function catch_up.note_time(lease_ms)
  local noted_at = step.counter('noted_at')
  if noted_at then
    local gap = step.now - noted_at
    local delayed_already = step.counter('no_expiry_before') > noted_at
    if gap * 3 > lease_ms * 2 and not delayed_already then
      -- The store was away or its clock jumped: holders could not renew, so give them time to. Once: who has not
      -- renewed by the next look is gone, even if everybody looks less often than leases last.
      step.set_counter('no_expiry_before', step.now + math.floor(lease_ms / 2))
    elseif gap < -lease_ms then
      shift_deadlines(gap)
    end
  end
  step.set_counter('noted_at', step.now)
end

-- --- what is due ----------------------------------------------------------------------------------------------

function catch_up.join_due()
  local found, all = step.due('due')
  local ids = {}
  for i, member in ipairs(found) do
    ids[i] = line.id_of_due(member)
  end
  rows.load(rows.numbers(ids))
  for _, id in ipairs(ids) do
    line.join(rows.find(id))
  end
  return ids, all
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
  if step.now < step.counter('no_expiry_before') then
    return {}, true
  end
  local tokens, all = step.due('expiry')
  return lease.lose(tokens, 'expired'), all
end

function catch_up.run(lease_ms)
  catch_up.note_time(lease_ms)
  local opened_all = open_closed_groups()
  local dropped_all = drop_tickets()
  local ids, expired_all = end_leases()
  local joined, joined_all = catch_up.join_due()
  hand_over()
  for _, id in ipairs(joined) do
    ids[#ids + 1] = id
  end
  return ids, not (opened_all and dropped_all and expired_all and joined_all)
end
