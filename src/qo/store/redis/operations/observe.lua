-- observe: move averages by one value each, and remember how wrong estimates were.
--
-- Arguments  observations, each an average and a value; errors of each task, as text that reads back to the same number;
--            keep_errors, the newest of each task
-- include lib/averages.lua

for _, observation in ipairs(arguments.observations) do
  averages.move(observation[1], observation[2])
end
for task, ratios in pairs(arguments.errors) do
  local name = key('errors:', task)
  call_in_parts('RPUSH', name, ratios)
  call('LTRIM', name, -arguments.keep_errors, -1)
end
return step.answer({})
