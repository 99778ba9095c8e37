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

local function complete(meta)
  meta.tasks = next(answer.tasks) and answer.tasks or nil
  return meta
end

function answer.send(meta)
  return step.answer(complete(meta), answer.blobs)
end

function answer.apart(make)
  -- An answer to somebody else, as one text: how long its parts are, then the parts. What `make` refers to is not in
  -- this step's own answer.
  local blobs, tasks = answer.blobs, answer.tasks
  answer.blobs, answer.tasks = {}, {}
  local parts, lengths = { cmsgpack.pack(complete(make())) }, {}
  for i, blob in ipairs(answer.blobs) do
    parts[i + 1] = blob or ''
  end
  for i, part in ipairs(parts) do
    lengths[i] = #part
  end
  answer.blobs, answer.tasks = blobs, tasks
  return table.concat(lengths, ' ') .. '\n' .. table.concat(parts)
end
