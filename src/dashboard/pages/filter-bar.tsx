import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useEffect, useId, useState } from "react";
import { api, type TaskQuery } from "../api.ts";
import { useLive, useSeesAll } from "../live.ts";

const statuses = [
  ["", "any status"],
  ["pending", "waiting"],
  ["claimed", "running"],
  ["completed", "completed"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
] as const;

/** What the list shows. Every choice is in the address, so that back and reload keep it. */
export function FilterBar({ filter }: { filter: TaskQuery }) {
  const navigate = useNavigate();
  const seesAll = useSeesAll();
  const depth = useLive(["depth"], api.depth, { isOff: !seesAll });
  const [name, setName] = useState(filter.name ?? "");
  const [tenant, setTenant] = useState(filter.tenant ?? "");
  const namesId = useId();
  useEffect(() => setName(filter.name ?? ""), [filter.name]);
  useEffect(() => setTenant(filter.tenant ?? ""), [filter.tenant]);

  const apply = (change: TaskQuery) => {
    const next = { name: name.trim(), tenant: tenant.trim(), status: filter.status, ...change };
    const search: TaskQuery = {
      ...(next.name !== "" && { name: next.name }),
      ...(next.status !== undefined && { status: next.status }),
      ...(next.tenant !== "" && { tenant: next.tenant }),
    };
    if (JSON.stringify(search) !== JSON.stringify(filter)) void navigate({ to: "/tasks", search });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply({});
  };
  const isFiltered = Object.keys(filter).length > 0;

  return (
    <form className="filter" role="search" aria-label="Filter of tasks" onSubmit={submit}>
      <input
        type="text"
        data-filter=""
        list={namesId}
        aria-label="Name"
        placeholder="Name"
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        value={name}
        onChange={(event) => {
          setName(event.target.value);
          // Chosen of the list, and not typed.
          if (!("inputType" in event.nativeEvent)) apply({ name: event.target.value });
        }}
        onBlur={() => apply({})}
      />
      <datalist id={namesId}>
        {Object.keys(depth.data ?? {})
          .slice(0, 500)
          .map((each) => (
            <option key={each} value={each} />
          ))}
      </datalist>
      <select
        aria-label="Status"
        value={filter.status ?? ""}
        onChange={(event) =>
          apply({ status: (event.target.value || undefined) as TaskQuery["status"] })
        }
      >
        {statuses.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      {seesAll && (
        <input
          type="text"
          aria-label="Tenant"
          placeholder="Tenant"
          autoComplete="off"
          spellCheck={false}
          maxLength={500}
          value={tenant}
          onChange={(event) => setTenant(event.target.value)}
          onBlur={() => apply({})}
        />
      )}
      <button type="submit" className="hidden" tabIndex={-1}>
        Filter
      </button>
      {isFiltered && (
        <button
          type="button"
          className="inline"
          onClick={() => void navigate({ to: "/tasks", search: {} })}
        >
          Clear
        </button>
      )}
    </form>
  );
}
