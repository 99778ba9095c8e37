-- release: give back what callers hold, or their place in line.
--
-- Arguments  holders, each with its token, if it names one
-- Answers    for each, whether it was theirs
-- Events     granted, for each slot that is handed over to a waiting caller
-- flags allow-oom
-- include lib/hand_over.lua
-- include lib/wake.lua

local tokens, has_left = {}, {}

local function release(holder, token)
  local held = not has_left[holder] and lease.of_caller(holder)
  if held then
    if token and token ~= held then
      return false
    end
    has_left[holder] = true
    tokens[#tokens + 1] = held
    return true
  end
  local ticket = not token and tickets.get(holder)
  if ticket then
    tickets.drop(ticket)
  end
  return ticket and true or false
end

local holders, answers = {}, {}
for i, wanted in ipairs(arguments.holders) do
  holders[i] = wanted.holder
end
lease.load_callers(holders)
for i, wanted in ipairs(arguments.holders) do
  answers[i] = release(wanted.holder, wanted.token)
end
lease.finish(tokens)
hand_over()
return step.answer({ answers = answers })
