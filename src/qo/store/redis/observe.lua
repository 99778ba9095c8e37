-- observe: move averages by one value each.
--
-- Arguments  observations, each an average and a value
-- include lib/averages.lua

for _, observation in ipairs(arguments.observations) do
  averages.move(observation[1], observation[2])
end
return step.answer({})
