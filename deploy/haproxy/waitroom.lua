-- Asks a replica about a request, through the local listener that haproxy.cfg has for it.
-- While one request waits for its answer, all others go on.
local REPLICAS = "http://127.0.0.1:8409"
-- Longer than the listener's own timeouts, so that it always has the last word.
local TIMEOUT_MS = 10000

-- Of the visitor's headers only these reach the sidecar.
local PASSED_ON = {
    "accept", "accept-language", "user-agent", "purpose", "sec-purpose", "x-moz",
    "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "access-control-request-method",
    "origin", "referer",
}
-- Of a refusal's headers only these reach the visitor.
local PASSED_BACK = {
    "set-cookie", "cache-control", "retry-after", "content-type", "content-language",
    "content-security-policy", "referrer-policy",
}

local function asking(txn, room)
    local given = txn.http:req_get_headers()
    local headers = {
        ["x-real-ip"] = { txn.f:src() },
        ["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" },
        ["x-forwarded-method"] = { txn.f:method() },
        ["x-forwarded-uri"] = { txn.f:pathq() },
        ["x-forwarded-host"] = { given["host"] and given["host"][0] or "" },
    }
    for _, name in ipairs(PASSED_ON) do
        if given[name] then headers[name] = { given[name][0] } end
    end
    -- A CORS preflight has no cookie and no body.
    local length = given["content-length"]
    if given["cookie"] or given["transfer-encoding"] or length and length[0] ~= "0" then
        headers["access-control-request-method"] = nil
    end
    -- Two, where another path or a parent domain has one of that name; the sidecar takes the better.
    local tickets, name = {}, "waitroom_" .. room
    for _, header in pairs(given["cookie"] or {}) do
        for pair in header:gmatch("[^;]+") do
            local key, value = pair:match("^%s*(%S-)%s*=%s*(%S+)%s*$")
            if key == name and #tickets < 2 then tickets[#tickets + 1] = name .. "=" .. value end
        end
    end
    if #tickets > 0 then headers["cookie"] = { table.concat(tickets, "; ") } end
    return headers
end

local function refuse(txn, answer)
    local status = answer.headers["x-waitroom-status"]
    local reply = txn:reply({ status = tonumber(status and status[0]) or answer.status })
    for _, name in ipairs(PASSED_BACK) do
        if answer.headers[name] then reply:add_header(name, answer.headers[name][0]) end
    end
    reply:set_body(answer.body)
    txn:done(reply)
end

-- http-request lua.waitroom ROOM: who waits gets the page, and the request ends here. Who is
-- admitted goes on; txn.waitroom_cookie is what the response is to bring. No answer:
-- txn.waitroom_away.
core.register_action("waitroom", { "http-req" }, function(txn, room)
    local answer = core.httpclient():get({
        url = REPLICAS .. "/gate/" .. room, headers = asking(txn, room), timeout = TIMEOUT_MS,
    })
    local state = answer and answer.headers and answer.headers["x-waitroom-state"]
    if not state then
        txn:set_var("txn.waitroom_away", true)
    elseif answer.status == 200 then
        local cookie = answer.headers["set-cookie"]
        if cookie then txn:set_var("txn.waitroom_cookie", cookie[0]) end
    else
        refuse(txn, answer)
    end
end, 1)

-- http-request lua.waitroom_release ROOM: after lua.waitroom; gives the visitor's slot back.
core.register_action("waitroom_release", { "http-req" }, function(txn, room)
    local headers = asking(txn, room)
    headers["x-waitroom-release"] = { "site" }
    headers["x-waitroom-given"] = { txn:get_var("txn.waitroom_cookie") }
    core.httpclient():post({
        url = REPLICAS .. "/_waitroom/" .. room .. "/leave", headers = headers, body = "",
        timeout = TIMEOUT_MS,
    })
end, 1)
