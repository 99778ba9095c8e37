-- Exponential moving averages of values and of their squares.
-- include lib/step.lua
-- exports averages

local averages = {}
local known_averages

at_the_beginning[#at_the_beginning + 1] = function()
  known_averages = {}
end

function averages.move(average, value)
  local name, weight = average.name, average.weight
  local mean = known_averages[name]
  if not mean then
    local text = call('HGET', written(key('averages')), name)
    mean = text and cmsgpack.unpack(text) or { average.first, average.first * average.first, 0 }
    known_averages[name] = mean
  end
  mean[1] = mean[1] + weight * (value - mean[1])
  mean[2] = mean[2] + weight * (value * value - mean[2])
  mean[3] = mean[3] + 1
  later('HSET', key('averages'), name, cmsgpack.pack(mean))
end
