-- Groups as readers see them.
-- include lib/lease.lua
-- include lib/kept.lua
-- exports status

local status = {}

local function slots_of(name)
  local held = call('ZRANGE', key('held:', name), 0, -1, 'WITHSCORES')
  local tokens, slots = {}, {}
  for i = 1, #held, 2 do
    tokens[#tokens + 1] = held[i]
  end
  lease.load(tokens)
  for i, token in ipairs(tokens) do
    local taken = lease.get(token)
    slots[i] = {
      slot_id = tonumber(held[2 * i]), holder = taken.holder, worker = taken.worker,
      expires_at = lease.end_on_the_clock(token), token = token,
    }
  end
  return slots
end

function status.of(name, asking, with_slots)
  -- `asking`: by group, those with a turn that ask for a slot of it.
  local group = groups.get(name)
  local waiting = 0
  for _, jobs in ipairs(call('HVALS', key('parks:', name))) do
    waiting = waiting + jobs
  end
  return {
    group = name, limit = group.limit, source = group.source, paused = group.paused,
    closed_until = group.closed_until and group.closed_until + step.counter('fallen_ms'), active = call('ZCARD', key('held:', name)), waiting = waiting,
    kept = asking[name] and asking[name][1].name, slots = with_slots and slots_of(name) or nil,
  }
end
