import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useEffect, useId, useState } from "react";
import { api, type TaskQuery } from "../api.ts";
import { wallClockMs } from "../browser.ts";
import { exactText } from "../facts/spans.ts";
import {
  conditionText,
  filterFields,
  parseFilter,
  stateWords,
  statusWords,
} from "../facts/tasks/filter.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay, useSeesAll } from "../live.ts";
import { FilterText } from "../parts/filter-text.tsx";
import { ShownText } from "../parts/text.tsx";

const spans = [
  ["900000", "last 15 minutes"],
  ["3600000", "last hour"],
  ["86400000", "last 24 hours"],
  ["604800000", "last 7 days"],
] as const;
// These have fields of their own; the others are marks that can be taken away.
const inFields = ["name", "status", "tenant", "sinceMs"];
const maxOffered = 500;
const maxChars = 20_000;

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
    // The same filter is the same address, in whichever order it was made.
    const first = { name: name.trim(), status: filter.status, tenant: tenant.trim() };
    const next = { ...first, ...filter, ...first, ...change };
    const given = Object.entries(next).filter(([, value]) => value !== undefined && value !== "");
    const search = Object.fromEntries(given) as TaskQuery;
    if (!isSame(search, filter)) void navigate({ to: "/tasks", search });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply({});
  };
  const remove = (field: string) => {
    apply({ [field]: undefined });
    // Its button goes with it, and the focus must not.
    document.querySelector<HTMLElement>("[data-filter]")?.focus();
  };
  const isFiltered = Object.keys(filter).length > 0;

  return (
    <div className="filters" role="search" aria-label="Filter of tasks">
      <form className="filter" onSubmit={submit}>
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
            .slice(0, maxOffered)
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
          <option value="">any status</option>
          {statusWords.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
        {seesAll && (
          <FilterText
            label="Tenant"
            value={tenant}
            onChange={setTenant}
            onApply={() => apply({})}
          />
        )}
        <select
          aria-label="Created"
          value={filter.sinceMs === undefined ? "" : "set"}
          onChange={({ target: { value } }) => {
            if (value === "set") return;
            const sinceMs = value === "" ? undefined : String(wallClockMs() - Number(value));
            apply({ sinceMs });
          }}
        >
          <option value="">created at any time</option>
          {filter.sinceMs !== undefined && <option value="set">{sinceText(filter.sinceMs)}</option>}
          {spans.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
        <button type="submit" className="hidden" tabIndex={-1}>
          Filter
        </button>
      </form>
      <MoreFilters onAdd={apply} />
      <Conditions filter={filter} onRemove={remove} />
      {isFiltered && (
        <button
          type="button"
          className="inline"
          onClick={() => void navigate({ to: "/tasks", search: {} })}
        >
          Clear
        </button>
      )}
    </div>
  );
}

function isSame(one: TaskQuery, other: TaskQuery): boolean {
  const textOf = (query: TaskQuery) =>
    JSON.stringify(Object.entries(query).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  return textOf(one) === textOf(other);
}

function sinceText(sinceMs: string): string {
  return `since ${/^\d{1,15}$/.test(sinceMs) ? exactText(Number(sinceMs)).slice(0, 16) : "…"}`;
}

/** All filters that there are, as text with completion: a field, a colon and a value. */
function MoreFilters({ onAdd }: { onAdd: (change: TaskQuery) => void }) {
  const [text, setText] = useState("");
  const [trouble, setTrouble] = useState<string>();
  const troubleId = useId();
  const offersId = useId();
  const offers = useOffers(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const written = parseFilter(text, wallClockMs());
    if (written.type === "trouble") return setTrouble(written.text);
    setTrouble(undefined);
    setText("");
    onAdd(written.filter);
  };
  return (
    <form className="filter-more" onSubmit={submit}>
      <input
        type="text"
        list={offersId}
        aria-label="More filters"
        aria-invalid={trouble !== undefined}
        aria-describedby={trouble === undefined ? undefined : troubleId}
        placeholder="More, such as pod:pod-1 or payload.order.id:7"
        autoComplete="off"
        spellCheck={false}
        maxLength={maxChars}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setTrouble(undefined);
        }}
      />
      <datalist id={offersId}>
        {offers.map(({ value, says }) => (
          <option key={value} value={value} label={says} />
        ))}
      </datalist>
      {trouble !== undefined && (
        <p id={troubleId} className="field-trouble" role="alert">
          <ShownText text={visibleLine(trouble, 500)} />
        </p>
      )}
    </form>
  );
}

type Offer = { readonly value: string; readonly says: string };

/** What may follow what is written: fields, and the values of those whose values are known. */
function useOffers(text: string): readonly Offer[] {
  const seesAll = useSeesAll();
  const seesPayloads = useMay("payloads:read");
  const before = text.slice(0, text.lastIndexOf(" ") + 1);
  const [field = "", value] = text.slice(before.length).split(":", 2);
  const isOf = (name: string) => value !== undefined && field === name;
  const pods = useLive(["pods"], api.fleet, { isOff: !seesAll || !isOf("pod") });
  const groups = useLive(["groups", {}], (signal) => api.errorGroups({}, signal), {
    isOff: !isOf("group"),
  });
  if (value === undefined) {
    return filterFields
      .filter(({ name }) => seesPayloads || name !== "payload.")
      .map(({ name, says, example }) => ({
        value: `${before}${name === "payload." ? name : `${name}:`}`,
        says: `${says}, such as ${example}`,
      }));
  }
  const known: readonly Offer[] = isOf("pod")
    ? (pods.data?.pods ?? []).map(({ podId }) => ({ value: podId, says: "" }))
    : isOf("group")
      ? (groups.data?.groups ?? []).map(({ group, message }) => ({
          value: group,
          says: visibleLine(message, 80),
        }))
      : isOf("status")
        ? statusWords.map(([, word]) => ({ value: word, says: "" }))
        : isOf("state")
          ? stateWords.map(([state, word]) => ({ value: state, says: word }))
          : isOf("is")
            ? [{ value: "set-aside", says: "" }]
            : isOf("since") || isOf("until")
              ? ["15min", "1h", "24h", "7d"].map((each) => ({ value: each, says: "ago" }))
              : [];
  return known
    .slice(0, maxOffered)
    .map((offer) => ({ ...offer, value: `${before}${field}:${offer.value}` }));
}

/** The conditions that have no field of their own. */
function Conditions({
  filter,
  onRemove,
}: {
  filter: TaskQuery;
  onRemove: (field: string) => void;
}) {
  const shown = Object.entries(filter).filter(([field]) => !inFields.includes(field));
  if (shown.length === 0) return null;
  return (
    <ul className="conditions" aria-label="Filters">
      {shown.map(([field, value]) => {
        const text = visibleLine(
          conditionText(field, value ?? "", (atMs) => exactText(atMs).slice(0, 16)),
          80,
        );
        return (
          <li key={field} className="condition">
            <ShownText text={text} />
            <button type="button" aria-label={`Remove ${text}`} onClick={() => onRemove(field)}>
              ×
            </button>
          </li>
        );
      })}
    </ul>
  );
}
