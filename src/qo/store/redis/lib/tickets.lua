-- Tickets: callers that wait for slots without a job.
-- include lib/walk.lua
-- exports tickets

local tickets = {}
local known_tickets

at_the_beginning[#at_the_beginning + 1] = function()
  known_tickets = {}
end

function tickets.are_there()
  -- Whether any caller waits; most steps then need not read more about callers.
  return step.counter('waiting_callers') > 0
end

function tickets.get(holder)
  if known_tickets[holder] == nil then
    local text = call('HGET', key('tickets'), holder)
    known_tickets[holder] = text and cmsgpack.unpack(text) or false
  end
  return known_tickets[holder] or nil
end

local function expiry_member(ticket)
  return string.format('%016.0f', ticket.key) .. ticket.holder
end

function tickets.holder_of(member)
  return member:sub(17)
end

function tickets.save(ticket)
  known_tickets[ticket.holder] = ticket
  later('HSET', key('tickets'), ticket.holder, cmsgpack.pack(ticket))
  step.comes('ticket_expiry', ticket.expires_at, expiry_member(ticket))
end

function tickets.enter(ticket)
  ticket.parked = groups.first_without_room(ticket.groups, 1)
  if ticket.parked then
    groups.park(ticket.parked, CALLERS, ticket.holder, ticket.key)
  else
    later('ZADD', key('ready:', CALLERS), ticket.key, ticket.holder)
  end
  step.set_counter('waiting_callers', step.counter('waiting_callers') + 1)
  tickets.save(ticket)
end

local function step_aside(ticket)
  if ticket.parked then
    groups.unpark(ticket.parked, CALLERS, ticket.holder)
  else
    later('ZREM', key('ready:', CALLERS), ticket.holder)
  end
end

function tickets.park(ticket, group)
  step_aside(ticket)
  ticket.parked = group
  groups.park(group, CALLERS, ticket.holder, ticket.key)
  tickets.save(ticket)
end

function tickets.drop(ticket)
  step_aside(ticket)
  known_tickets[ticket.holder] = false
  step.set_counter('waiting_callers', step.counter('waiting_callers') - 1)
  later('HDEL', key('tickets'), ticket.holder)
  later('ZREM', key('ticket_expiry'), expiry_member(ticket))
end
