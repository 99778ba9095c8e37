-- Jobs in an answer: their rows as stored, with what a reader needs beside them.
-- include lib/rows.lua
-- exports answer

local answer = {}

at_the_beginning[#at_the_beginning + 1] = function()
  answer.blobs, answer.tasks = {}, {}
end

local function add_blob(text)
  answer.blobs[#answer.blobs + 1] = text or false
  return #answer.blobs
end
answer.blob = add_blob

function answer.note_task(name)
  local names = tasks.get(name).groups
  answer.tasks[name] = names or NONE
end

function answer.job(row, position)
  -- What stands for a job in an answer: where its row, its position and its result are.
  answer.note_task(row.task)
  local found = { row = add_blob(rows.packed(row)), position = position }
  if row.state == 'queued' and not position then
    found.position = call('ZRANK', written(key('line')), row.number) + 1
  end
  if row.state == 'succeeded' then
    local result = call('HGET', written(key('results')), row.number)
    if result then
      found.result = add_blob(result)
    end
  end
  return found
end

function answer.send(meta)
  meta.tasks = next(answer.tasks) and answer.tasks or nil
  return step.answer(meta, answer.blobs)
end
