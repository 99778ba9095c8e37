-- An undo counts only if nothing was changed since: the entry that it undoes is the newest about its subject.
-- include lib/step.lua
-- exports undoing

local undoing = {}

function undoing.entry(subject, id)
  -- The detail of the entry, nil if it is not the newest one about this subject.
  local newest = call('LINDEX', key('audit:', subject), -1)
  if not newest or tonumber(newest) ~= id then
    return nil
  end
  return cjson.decode(cmsgpack.unpack(call('HGET', key('audit'), newest))[5])
end

function undoing.of_job(row, id)
  -- nil also if the entry is a move and the job has another key by now.
  local detail = undoing.entry(row.id, id)
  if detail and detail.key and not (row.key and detail.key == digits(row.key)) then
    return nil
  end
  return detail
end

function undoing.is_limit_of(group, id)
  -- Whether the group's limit is the one that the entry has set.
  local detail = undoing.entry(group.name, id)
  if not detail or detail.limit == nil then
    return false
  elseif detail.limit == cjson.null then
    return not group.limit
  end
  return group.limit == detail.limit and group.source == detail.source
end

function undoing.refuse(subject, id)
  return step.refuse('changed_since', { subject = subject, entry = id })
end
