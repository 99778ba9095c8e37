-- Tickets: callers that wait for slots without a job.
-- include lib/lanes.lua
-- include lib/turns.lua
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
  return string.format('%016d', ticket.key) .. ticket.holder
end

function tickets.holder_of(member)
  return member:sub(17)
end

function tickets.keep(ticket)
  -- Save a ticket whose time has not changed.
  known_tickets[ticket.holder] = ticket
  later('HSET', key('tickets'), ticket.holder, cmsgpack.pack(ticket))
end

function tickets.save(ticket)
  tickets.keep(ticket)
  step.comes('ticket_expiry', ticket.expires_at, expiry_member(ticket))
end

function tickets.lane_of(ticket)
  -- Its name begins like that of no job's lane, because no task has an empty name.
  return lanes.get(CALLERS .. '\0' .. table.concat(ticket.groups, '\0'), CALLERS)
end

function tickets.enter(ticket)
  lanes.enter(tickets.lane_of(ticket), ticket.holder, ticket.key, ticket.groups, 1)
  step.set_counter('waiting_callers', step.counter('waiting_callers') + 1)
  tickets.save(ticket)
end

function tickets.park(ticket, group)
  lanes.park(tickets.lane_of(ticket), group)
end

function tickets.drop(ticket)
  lanes.leave(tickets.lane_of(ticket), ticket.holder)
  turns.begin_anew(ticket)
  known_tickets[ticket.holder] = false
  step.set_counter('waiting_callers', step.counter('waiting_callers') - 1)
  later('HDEL', key('tickets'), ticket.holder)
  later('ZREM', key('ticket_expiry'), expiry_member(ticket))
end
