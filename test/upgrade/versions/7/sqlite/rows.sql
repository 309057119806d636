insert into flotilla_pod (pod_id, started_at, last_heartbeat, status, metadata, beat, claim_floor)
  values ('old-pod', 1700000000000, 1700000000000, 'up', '{}', 41, 3);

insert into flotilla_pod (pod_id, started_at, last_heartbeat, status, metadata, beat)
  values ('left-pod', 1700000000000, 1700000000000, 'down', '{}', 7);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update)
  values ('pending', 'old', 'pending', '1', 1700000000000, 1700000000000, 1700000000000);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, parked)
  values ('waiting', 'old', 'pending', '1', 4102444800000, 1700000000000, 1700000000000, 1);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, parked)
  values ('overdue', 'old', 'pending', '1', 1700000000000, 1700000000000, 1700000000000, 1);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, parked, retry_count, claim_token, error)
  values ('retrying', 'old', 'pending', '1', 1700000000000, 1700000000000, 1700000000000, 1, 1, 2, '{"code":"task_failed","message":"it didn''t work"}');

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, deaths, claim_token)
  values ('poison', 'old', 'pending', '1', 1700000000000, 1700000000000, 1700000000000, 2, 2);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claimed_by, claim_token, claim_call)
  values ('claimed', 'old', 'claimed', '1', 1700000000000, 1700000000000, 1700000000000, 'old-pod', 1, 9);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claimed_by, claim_token, claim_call, cancel_requested, wake)
  values ('cancelling', 'old', 'claimed', '1', 1700000000000, 1700000000000, 1700000000000, 'old-pod', 1, 9, 1, 1);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claimed_by, claim_token, claim_call)
  values ('orphaned', 'old', 'claimed', '1', 1700000000000, 1700000000000, 1700000000000, 'unknown-pod', 4, 2);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claimed_by, claim_token, progress, result, unique_key)
  values ('completed', 'old', 'completed', '1', 1700000000000, 1700000000000, 1700000000000, 'left-pod', 1, '"half"', '{"doubled":2}', 'once');

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claimed_by, claim_token, retry_count, max_attempts, error)
  values ('failed', 'old', 'failed', '1', 1700000000000, 1700000000000, 1700000000000, 'left-pod', 3, 2, 2, '{"code":"task_failed","message":"it didn''t work"}');

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claim_token, cancel_requested, wake)
  values ('cancelled', 'old', 'cancelled', '1', 1700000000000, 1700000000000, 1700000000000, 1, 1, 1);

insert into flotilla_task_event (task_id, seq, at, type, attempt, pod_id, detail)
  values ('failed', 1, 1700000000000, 'retry', 1, 'left-pod', '{"code":"task_failed","message":"it didn''t work"}');

insert into flotilla_task_event (task_id, seq, at, type, attempt, pod_id, detail)
  values ('failed', 2, 1700000000000, 'failed', 2, 'left-pod', '{"code":"task_failed","message":"it didn''t work"}');

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, trace)
  values ('traced', 'old', 'pending', '1', 1700000000000, 1700000000000, 1700000000000, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01');

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claim_token)
  values ('stepped', 'steps', 'pending', '1', 1700000000000, 1700000000000, 1700000000000, 2);

insert into flotilla_step_journal (owner_id, key, seq, token, kind, value, input_hash, started_at, at)
  values ('stepped', 'first', 1, 1, 'done', '{"words":3}', '9anBFe1MO3UdrYO7eI5NI5MJepd', 1700000000000, 1700000000000);

insert into flotilla_step_journal (owner_id, key, seq, token, kind, value, started_at, at)
  values ('stepped', 'loop', 2, 1, 'round', '{"at":3,"state":{"n":2}}', 1700000000000, 1700000000000);

insert into flotilla_step_journal (owner_id, key, seq, token, kind, value, started_at, at)
  values ('stepped', 'outer/inner', 3, 1, 'done', '"inner"', 1700000000000, 1700000000000);

insert into flotilla_step_journal (owner_id, key, seq, token, kind, value, started_at, at)
  values ('stepped', 'each[a]]b]', 4, 1, 'failed', '{"code":"aborted","message":"no such page"}', 1700000000000, 1700000000000);

insert into flotilla_step_journal (owner_id, key, seq, token, kind, value, started_at, at)
  values ('stepped', 'once', 5, 1, 'begun', 'null', 1700000000000, 1700000000000);

insert into flotilla_throttle (name, bound, epoch, shares, created_at, last_update)
  values ('api', 5, 3, '{"old-pod":{"share":2,"renewal":7,"leaseMs":60000,"longestMs":605000}}', 1700000000000, 1700000000000);

insert into flotilla_session_log (log_id, incarnation, record_id, log_offset)
  values (0, 'old', 'r1', 1);

insert into flotilla_session (session_id, log_id, last_offset, last_seq, header, created_at, active_at)
  values ('talk', 0, 1, 1, '{"sessionId":"talk","tenant":"default","agents":[],"users":["ada"],"status":"active","lastSeq":1,"epoch":0,"work":null,"pending":[],"summarySeq":0,"compactedSeq":0,"tokens":1,"compactionFailures":0,"failedAtTokens":0,"needsCompaction":false,"metadataVersion":0,"preview":"hello","previewAuthor":"ada","createdAtMs":1700000000000,"activeAtMs":1700000000000}', 1700000000000, 1700000000000);

insert into flotilla_session_user (session_id, user_id)
  values ('talk', 'ada');

insert into flotilla_message (session_id, seq, role, author, message_id, body, at)
  values ('talk', 1, 'user', 'ada', 'said-1', '{"tokens":1,"parts":[{"type":"text","text":"hello"}]}', 1700000000000);

insert into flotilla_link (from_id, to_id, what, at)
  values ('talk', 'completed', 'session', 1700000000000);

insert into flotilla_turn (session_id, epoch, attempt, agent, pod_id, began_at, ended_at, outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths)
  values ('talk', 1, 1, 'helper', 'left-pod', 1700000000000, 1700000000000, 'completed', 10, 2, 0, 'small', 1500000);

insert into flotilla_task (task_id, name, status, payload, run_at, created_at, last_update, claim_token, task_version, begun_version)
  values ('versioned', 'versions', 'pending', '1', 1700000000000, 1700000000000, 1700000000000, 2, 2, 1);

insert into flotilla_credential_version (id, version)
  values (1, 3);

insert into flotilla_api_key (key_id, name, hash, role, payloads, created_at, version)
  values ('key-1', 'web', '0000000000000000000000000000000000000000000000000000000000000000', 'operator', 1, 1700000000000, 1);

insert into flotilla_token_revocation (kind, subject, before_at, expires_at, version)
  values ('jti', 'token-1', 1700000000000, 4102444800000, 2);

insert into flotilla_sign_in (sign_in_id, hash, key_id, key_name, role, verbs, origin, created_at, last_used_at, expires_at, version)
  values ('browser-1', '1111111111111111111111111111111111111111111111111111111111111111', 'key-1', 'web', 'operator', '["fleet:read","fleet:operate"]', 'https://ops.example', 1700000000000, 1700000000000, 4102444800000, 3);

insert into flotilla_tenant_count (tenant, log_id, sessions, turns, bytes)
  values ('default', 0, 1, 0, 60);

insert into flotilla_audit (id, at, actor, key_name, role, action, subject, count, outcome)
  values ('act-1', 4102444800000, 'key/web', 'web', 'operator', 'tasks.retry', 'failed', 1, 'done');

insert into flotilla_pod (pod_id, started_at, last_heartbeat, status, metadata, beat, drain, pulse)
  values ('drained-pod', 1700000000000, 1700000000000, 'down', '{}', 3, 1, '{"claimed":7,"held":0}');

insert into flotilla_series_fold (id, closed_to, last_fold)
  values (1, 1700000000000, 'fold-1');

insert into flotilla_series (span, at, subject, pod, counts)
  values (60000, 4102444800000, 'task:work', '', '{"counts":{"completed":7}}');

insert into flotilla_failure_group (group_id, state, state_at, until_at, first_at, last_update)
  values ('group-1', 'ignored', 1700000000000, 4102444800000, 1700000000000, 4102444800000);

insert into flotilla_throttle_event (name, seq, cause, bound, epoch)
  values ('api', 1, 'first_use', 5, 3);

insert into flotilla_bulk (bulk_id, action, filter, state, cursor_id, until_id, matched, is_exact, done, created_by, created_at, last_update)
  values ('bulk-1', 'cancel', '{"name":"outdated"}', 'stopped', 'task-1', 'task-9', 9, 1, 1, 'key/web', 4102444800000, 4102444800000);

insert into flotilla_task_alias (alias_id, task_id)
  values ('promised', 'completed');

insert into flotilla_archive_aside (log_id, incarnation, log_offset, place, session_id, seq, body, reason, at)
  values (0, 'old', 1, 0, 'talk', 1, '{"text":"refused"}', 'a character that the database doesn''t take', 4102444800000);
