-- src/bus/sql.ts: insertEnvelopes
insert into flotilla.bus_message (address, sender, seq, body, at)
select address, sender, seq, body, now_ms() from (select address collate "C" as address, sender collate "C" as sender, seq, body collate "C" as body from unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) as each_row (address, sender, seq, body)) fresh where true
on conflict do nothing
-- values: ["{\"pod-1\"}","{\"pod-2\"}","{3}","{\"[]\"}"]

-- src/bus/sql.ts: readEnvelopes
select sender, seq, body from flotilla.bus_message
where address = $1
order by sender, seq limit cast($2 as integer)
-- values: ["pod-1",10]

-- src/bus/sql.ts: deleteEnvelopes
delete from flotilla.bus_message
where address = $1
  and (sender, seq) in (select done.sender, done.seq from (select sender collate "C" as sender, seq from unnest($2::text[], $3::bigint[]) as each_row (sender, seq)) done)
-- values: ["pod-1","{\"pod-2\"}","{3}"]

-- src/bus/sql.ts: pruneEnvelopes
delete from flotilla.bus_message
where ctid = any(array(select ctid from flotilla.bus_message where at < now_ms() - $1 limit cast($2 as integer)))
-- values: [60000,100]

-- src/bus/sql.ts: readBusSecret
select secret from flotilla.bus_secret limit cast($1 as integer)
-- values: [1]
