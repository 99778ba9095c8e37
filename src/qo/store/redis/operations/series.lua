-- series: figures by name and minute.
--
-- Arguments  prefix, since_minute
-- Answers    name, minute, count and total_ms of each, in no order
-- flags no-writes
-- include lib/step.lua

local wanted, points = arguments.prefix, {}
for _, minute in ipairs(call('ZRANGEBYSCORE', key('minutes'), arguments.since_minute, '+inf')) do
  local stored, totals = call('HGETALL', key('figures:', minute)), {}
  for i = 1, #stored, 2 do
    if stored[i]:sub(1, 2) == 't:' then
      totals[stored[i]:sub(3)] = tonumber(stored[i + 1])
    end
  end
  for i = 1, #stored, 2 do
    local name = stored[i]:sub(3)
    if stored[i]:sub(1, 2) == 'n:' and name:sub(1, #wanted) == wanted then
      points[#points + 1] = {
        name = name, minute = tonumber(minute), count = tonumber(stored[i + 1]), total_ms = totals[name] or 0,
      }
    end
  end
end
return step.answer({ points = points })
