import {
  contentValue,
  forUpdate,
  isAmong,
  limit,
  now,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";

const files = table("file");
const parts = table("file_part");
const remnants = table("file_remnant");
const references = table("file_reference");
const counts = table("file_count");

/** Where the bytes of a file are. */
export type BytesPlace = "store" | "folder" | "s3";

/**
 * What refers to files: a session; a task or run; or an upload, whose files tasks may refer to for an hour.
 * Only through its owner is a file found.
 */
export type OwnerKind = "session" | "task" | "upload";
export type FileOwner = { readonly kind: OwnerKind; readonly id: string };

/**
 * Says that bytes are about to be stored under this id, and since when. One that lands late, after it was sent
 * again and the upload has ended, must not make a remnant of the file: the collector would take its bytes.
 */
export function beginUpload(tenant: string, fileId: string, place: BytesPlace): Statement[] {
  const fresh = rows({ file_id: "text", place: "text" }, [[fileId, place]]);
  return [
    // A store with a row of these has something for the leader to look after. The end of an upload locks it too.
    sql`
      insert into ${counts} as counted (tenant) values (${tenant})
      on conflict (tenant) do update set files = counted.files`,
    sql`
      insert into ${remnants} (file_id, place)
      select file_id, place from ${fresh} fresh
      where not exists (select 1 from ${files} file where file.file_id = fresh.file_id)
      on conflict (file_id) do nothing`,
    sql`select began_at from ${remnants} where file_id = ${fileId}`,
  ];
}

/** Stores a part of the bytes, unless the upload was given up for dead. */
export function insertPart(fileId: string, part: number, body: string): Statement {
  const fresh = rows({ part: "integer" }, [[part]]);
  return sql`
    insert into ${parts} (file_id, part, body)
    select remnant.file_id, (select part from ${fresh} fresh), ${contentValue(body)}
    from ${remnants} remnant
    where remnant.file_id = ${fileId} and remnant.closed = 0
    ${forUpdate}
    on conflict (file_id, part) do nothing`;
}

export function readPart(fileId: string, part: number): Statement {
  return sql`select body from ${parts} where file_id = ${fileId} and part = ${part}`;
}

export type FinishedUpload = {
  readonly fileId: string;
  /**
   * What its beginning has said. If that lands once more, when the collector has already taken the parts, the
   * upload isn't open again.
   */
  readonly beganAt: number;
  readonly tenant: string;
  readonly owner: FileOwner;
  readonly hash: string;
  readonly size: number;
  readonly place: BytesPlace;
  /** The type and the name, as JSON. */
  readonly metadata: string;
  /** A message has it already, or is about to. */
  readonly kept: boolean;
  /** The claim of the attempt whose result has it, which is kept once that has completed the task. */
  readonly token?: number | undefined;
};

/** The most that the files of one owner, and those of a tenant, may come to. */
export type FileQuotas = {
  readonly ownerFiles: number;
  readonly ownerBytes: number;
  readonly tenantFiles: number;
  readonly tenantBytes: number;
};

/**
 * Makes a file of an upload, or uses the tenant's file of the same content, and has its owner refer to it.
 * The same transaction sent again changes nothing: what was an upload before is none any more. The last
 * statement tells what has become of it.
 */
export function finishUpload(upload: FinishedUpload, quotas: FileQuotas): Statement[] {
  const { fileId, beganAt, tenant, owner, hash, size, place, metadata } = upload;
  const { kept, token = null } = upload;
  const fresh = rows(
    { file_id: "text", tenant: "text", hash: "text", size: "integer", place: "text" },
    [[fileId, tenant, hash, size, place]],
  );
  const isOpen = sql`exists (select 1 from ${remnants} remnant
    where remnant.file_id = ${fileId} and remnant.closed = 0 and remnant.began_at = ${beganAt})`;
  const isReferred = sql`exists (select 1 from ${references} reference
    where ${isOwner(owner)} and reference.hash = ${hash})`;
  const fitsTenant = sql`exists (select 1 from ${counts} counted
    where counted.tenant = ${tenant} and counted.files < ${quotas.tenantFiles}
      and counted.bytes + ${size} <= ${quotas.tenantBytes})`;
  // Uploads of a caller for tasks are bounded by what their tenant may have.
  const fitsOwner =
    owner.kind === "upload"
      ? sql`1 = 1`
      : sql`(select count(*) < ${quotas.ownerFiles}
          and coalesce(sum(reference.size), 0) + ${size} <= ${quotas.ownerBytes}
        from ${references} reference where ${isOwner(owner)})`;
  return [
    // Locks the tenant's row, so that two uploads don't pass a quota together, and the collector takes no file
    // that this owner is about to refer to.
    sql`
      insert into ${counts} as counted (tenant) values (${tenant})
      on conflict (tenant) do update set files = counted.files`,
    // The collector closes a remnant before it removes the bytes, and waits for this transaction.
    sql`select file_id from ${remnants} where file_id = ${fileId} ${forUpdate}`,
    ...(owner.kind === "session" ? dropReferencesToOthers(owner.id, sql`${tenant}`, hash) : []),
    sql`
      insert into ${files} (file_id, tenant, hash, size, place)
      select file_id, tenant, hash, size, place from ${fresh} fresh
      where ${isOpen} and ${fitsTenant} and (${isReferred} or ${fitsOwner})
      on conflict do nothing`,
    // An attempt that comes late with the same file doesn't take it from the one that has its task by now.
    sql`
      insert into ${references} as referring
        (owner_kind, owner_id, hash, file_id, size, metadata, kept, token)
      select ${owner.kind}, ${owner.id}, file.hash, file.file_id, file.size,
        ${contentValue(metadata)}, cast(${kept ? 1 : 0} as integer), cast(${token} as bigint)
      from ${files} file
      where file.tenant = ${tenant} and file.hash = ${hash} and (${isReferred} or ${fitsOwner})
      on conflict (owner_kind, owner_id, hash) do update
      set at = excluded.at,
        kept = case when excluded.kept = 1 then 1 else referring.kept end,
        token = case when excluded.kept = 1 or referring.kept = 1 then null
          when referring.token > excluded.token then referring.token
          else excluded.token end`,
    sql`
      update ${counts} set files = files + 1, bytes = bytes + ${size}
      where tenant = ${tenant} and ${isOpen}
        and exists (select 1 from ${files} file where file.file_id = ${fileId})`,
    sql`
      delete from ${remnants} where file_id = ${fileId}
        and exists (select 1 from ${files} file where file.file_id = ${fileId})`,
    sql`
      select (select file_id from ${files} file where file.tenant = ${tenant} and file.hash = ${hash})
          as file_id,
        case when ${isReferred} then 1 else 0 end as referred,
        case when ${fitsOwner} then 1 else 0 end as fits_owner,
        case when ${fitsTenant} then 1 else 0 end as fits_tenant
      from ${counts} counted where counted.tenant = ${tenant}`,
  ];
}

/** Whether so many bytes more would fit, for an upload that is about to begin. */
export function readUsed(owner: FileOwner): Statement {
  return sql`
    select count(*) as owner_files, coalesce(sum(size), 0) as owner_bytes
    from ${references} reference where ${isOwner(owner)}`;
}

function isOwner({ kind, id }: FileOwner): Statement {
  return sql`reference.owner_kind = ${kind} and reference.owner_id = ${id}`;
}

/** What these owners refer to by these hashes. */
export function readReferences(owners: readonly FileOwner[], hashes: readonly string[]): Statement {
  const from = rows(
    { owner_kind: "text", owner_id: "text" },
    owners.map(({ kind, id }) => [kind, id]),
  );
  const wanted = rows(
    { hash: "text" },
    hashes.map((hash) => [hash]),
  );
  return sql`
    select reference.owner_kind, reference.owner_id, reference.hash, reference.size,
      reference.metadata, file.tenant
    from ${from} owner
    join ${references} reference
      on reference.owner_kind = owner.owner_kind and reference.owner_id = owner.owner_id
    join ${files} file on file.file_id = reference.file_id
    where ${isAmong(sql`select hash from ${wanted} wanted`, sql`reference.hash`)}`;
}

/**
 * Keeps files for a message that is about to be stored. The rows are of those that the session has of its
 * tenant.
 */
export function keepReferences(
  { tenant, sessionId }: { readonly tenant: string; readonly sessionId: string },
  hashes: readonly string[],
): Statement[] {
  const wanted = rows(
    { hash: "text" },
    hashes.map((hash) => [hash]),
  );
  const mine = sql`owner_kind = 'session' and owner_id = ${sessionId}
    and ${isAmong(sql`select hash from ${wanted} wanted`, sql`hash`)}
    and exists (select 1 from ${files} file
      where file.file_id = ${references}.file_id and file.tenant = ${tenant})`;
  return [
    sql`update ${references} set kept = 1 where ${mine}`,
    sql`select hash, size, metadata from ${references} where ${mine}`,
  ];
}

/**
 * Has a fork refer to all that its parent refers to, if it was made room for by the statement before, and its id
 * is that of no session yet. The tenant's row is locked, as an upload does.
 */
export function copyReferences(
  fork: { readonly sessionId: string; readonly parentId: string },
  { tenant, isHeld }: { readonly tenant: string; readonly isHeld: Statement },
): Statement[] {
  const { sessionId, parentId } = fork;
  return [
    sql`select tenant from ${counts} where tenant = ${tenant} ${forUpdate}`,
    sql`
      insert into ${references} (owner_kind, owner_id, hash, file_id, size, metadata, kept)
      select 'session', ${sessionId}, hash, file_id, size, metadata, 1
      from ${references} reference
      where ${isOwner({ kind: "session", id: parentId })} and ${isHeld}
        and not exists (select 1 from ${table("session")} session
          where session.session_id = ${sessionId})
      on conflict (owner_kind, owner_id, hash) do update set kept = 1`,
  ];
}

export function readReference(owner: FileOwner, hash: string): Statement {
  return sql`
    select reference.hash, reference.size, reference.metadata, reference.file_id,
      file.place, file.tenant
    from ${references} reference
    join ${files} file on file.file_id = reference.file_id
    where ${isOwner(owner)} and reference.hash = ${hash}`;
}

/** Deletes what owners refer to that are deleted. `ids` finds them. */
export function deleteReferencesOf(kind: OwnerKind, ids: Statement): Statement[] {
  return dropReferences(sql`owner_kind = ${kind} and ${isAmong(ids, sql`owner_id`)}`);
}

/** The same for owners by their ids. */
export function deleteReferencesAmong(kind: OwnerKind, ids: readonly string[]): Statement[] {
  const gone = rows(
    { owner_id: "text" },
    ids.map((id) => [id]),
  );
  return deleteReferencesOf(kind, sql`select owner_id from ${gone} gone`);
}

/** Deletes references, whose files may be unused from now on. */
export function dropReferences(which: Statement): Statement[] {
  return [
    sql`
      update ${files} set unused_at = ${now}
      where ${isAmong(sql`select file_id from ${references} where ${which}`, sql`file_id`)}`,
    sql`delete from ${references} where ${which}`,
  ];
}

/**
 * Deletes what a session refers to of other tenants: all of it, or by one hash. It has got that if it took the id
 * of a fork that was begun, and had the files of its parent by then.
 */
export function dropReferencesToOthers(
  sessionId: string,
  tenant: Statement,
  hash?: string,
): Statement[] {
  return dropReferences(sql`owner_kind = 'session' and owner_id = ${sessionId}
    ${hash === undefined ? sql`` : sql`and hash = ${hash}`}
    and exists (select 1 from ${files} other
      where other.file_id = ${references}.file_id and other.tenant <> ${tenant})`);
}

/** Uploads that no message and no task has in so long. */
export function findUnsent(graceMs: number, count: number): Statement {
  return sql`
    select owner_kind, owner_id, hash from ${references}
    where kept = 0 and at < ${now} - ${graceMs} order by at ${limit(count)}`;
}

/**
 * Deletes them, except those that are referred to by now: by a message, or by the result of the attempt that
 * has made them. While that attempt can still complete the task, however late, they wait for another hour.
 */
export function dropUnsent(
  found: readonly (FileOwner & { readonly hash: string })[],
  graceMs: number,
): Statement[] {
  const unsent = rows(
    { owner_kind: "text", owner_id: "text", hash: "text" },
    found.map(({ kind, id, hash }) => [kind, id, hash]),
  );
  const isUnsent = sql`kept = 0 and at < ${now} - ${graceMs}
    and exists (select 1 from ${unsent} unsent
      where unsent.owner_kind = ${references}.owner_kind
        and unsent.owner_id = ${references}.owner_id and unsent.hash = ${references}.hash)`;
  const isOfTask = sql`token is not null and exists (select 1 from ${table("task")} task
    where task.task_id = ${references}.owner_id and task.claim_token = ${references}.token`;
  return [
    sql`update ${references} set kept = 1, token = null
      where ${isUnsent} and ${isOfTask} and task.status = 'completed')`,
    sql`update ${references} set at = ${now}
      where ${isUnsent} and ${isOfTask} and task.status in ('pending', 'claimed', 'completed'))`,
    ...dropReferences(isUnsent),
  ];
}

/** A page of owners with references after one, and whether they are deleted. */
export function readReferringOwners(
  kind: "session" | "task",
  after: string,
  count: number,
): Statement {
  const { owners, isGone } =
    kind === "session"
      ? {
          owners: sql`${table("session")} owner on owner.session_id`,
          isGone: sql`owner.status = 'deleted'`,
        }
      : {
          owners: sql`${table("task")} owner on owner.task_id`,
          isGone: sql`owner.task_id is null`,
        };
  return sql`
    select distinct reference.owner_id, case when ${isGone} then 1 else 0 end as deleted
    from ${references} reference
    left join ${owners} = reference.owner_id
    where reference.owner_kind = ${kind} and reference.owner_id > ${after}
    order by reference.owner_id ${limit(count)}`;
}

/** Files that may have been unused for so long. */
export function findUnused(graceMs: number, count: number): Statement {
  return sql`
    select file_id from ${files}
    where unused_at is not null and unused_at < ${now} - ${graceMs}
    order by unused_at ${limit(count)}`;
}

/**
 * Deletes those of the files that nothing refers to, and leaves their bytes as remnants. Uploads lock the
 * row of their tenant's count too: one that refers to such a file was before this, and the file stays, or comes
 * after it and stores the content anew.
 */
export function deleteUnused(fileIds: readonly string[], graceMs: number): Statement[] {
  const found = rows(
    { file_id: "text" },
    fileIds.map((fileId) => [fileId]),
  );
  const isFound = sql`${isAmong(sql`select file_id from ${found} found`, sql`file_id`)}`;
  const isReferred = sql`exists (select 1 from ${references} reference
    where reference.file_id = ${files}.file_id)`;
  return [
    sql`
      select tenant from ${counts}
      where tenant in (select tenant from ${files} where ${isFound}) order by tenant ${forUpdate}`,
    // A deletion that drops a reference marks the file first: what follows sees it whole, or not begun.
    sql`select file_id from ${files} where ${isFound} order by file_id ${forUpdate}`,
    sql`
      insert into ${remnants} (file_id, place, closed)
      select file_id, place, 1 from ${files}
      where ${isFound} and unused_at < ${now} - ${graceMs} and not ${isReferred}
      on conflict (file_id) do nothing`,
    sql`
      update ${counts} set
        files = files - (select count(*) from ${goneOf(isFound)} gone
          where gone.tenant = ${counts}.tenant),
        bytes = bytes - (select coalesce(sum(gone.size), 0) from ${goneOf(isFound)} gone
          where gone.tenant = ${counts}.tenant)
      where tenant in (select gone.tenant from ${goneOf(isFound)} gone)`,
    sql`
      delete from ${files} where ${isFound}
        and exists (select 1 from ${remnants} remnant where remnant.file_id = ${files}.file_id)`,
    // One that has a reference is marked again when that goes.
    sql`update ${files} set unused_at = null where ${isFound} and ${isReferred}`,
  ];
}

/** Files that this transaction has made remnants of. */
function goneOf(isFound: Statement): Statement {
  return sql`(select tenant, size from ${files}
    where ${isFound} and exists (select 1 from ${remnants} remnant
      where remnant.file_id = ${files}.file_id))`;
}

/** Closes remnants of uploads that began so long ago, which nothing is added to then. */
export function closeRemnants(graceMs: number): Statement {
  return sql`
    update ${remnants} set closed = 1 where closed = 0 and began_at < ${now} - ${graceMs}`;
}

/**
 * Closes the remnant of an upload that has failed, if the collector hasn't forgotten it already. No row: it isn't
 * one, but a file.
 */
export function closeRemnant(fileId: string): Statement[] {
  const failed = rows({ file_id: "text" }, [[fileId]]);
  return [
    sql`update ${remnants} set closed = 1 where file_id = ${fileId}`,
    sql`
      select file_id from ${failed} failed
      where not exists (select 1 from ${files} file where file.file_id = failed.file_id)`,
  ];
}

/** Closed remnants after one, whose bytes are where this process can remove them. */
export function findClosed(places: readonly BytesPlace[], after: string, count: number): Statement {
  const known = rows(
    { place: "text" },
    places.map((place) => [place]),
  );
  return sql`
    select file_id, place from ${remnants}
    where closed = 1 and file_id > ${after} and place in (select place from ${known} known)
    order by file_id ${limit(count)}`;
}

export function deleteParts(fileId: string): Statement {
  return sql`
    delete from ${parts} where file_id = ${fileId}
      and exists (select 1 from ${remnants} remnant
        where remnant.file_id = ${parts}.file_id and remnant.closed = 1)`;
}

/** Forgets a remnant whose bytes are gone. */
export function dropRemnant(fileId: string): Statement {
  return sql`delete from ${remnants} where file_id = ${fileId} and closed = 1`;
}
