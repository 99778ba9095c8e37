-- Jobs and leases in a reply: rows as stored, with position and result beside them.
-- include lib/lease.lua
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

function answer.job(row, position)
  -- A job in a reply: the indexes of its row, its position and its result.
  answer.tasks[row.task] = tasks.get(row.task).groups
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

local LIST_OF_EIGHT, BYTES, NOTHING = '\152', '\198', '\192'

local function bytes(content)
  -- Packed as binary; cmsgpack would pack every string as text.
  return content and BYTES .. struct.pack('>I4', #content) .. content or NOTHING
end

function answer.lease(row, held, expires_at, payload, checkpoint)
  -- One string, so that it can also be a message; `LeaseRow` in `store/redis/rows.py` reads it.
  return LIST_OF_EIGHT .. cmsgpack.pack(row.token, held.claim, expires_at, lease.slots(held), tasks.groups_of(row))
    .. bytes(payload) .. bytes(checkpoint) .. rows.packed(row)
end
