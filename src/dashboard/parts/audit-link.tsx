import { Link } from "@tanstack/react-router";
import { useMay, useSeesAll } from "../live.ts";

/** Whether the caller may read the audit, which is about all tenants. */
export function useMayAudit(): boolean {
  const isAdmin = useMay("admin");
  const seesAll = useSeesAll();
  return isAdmin && seesAll;
}

/** Leads from a thing to the acts on it, where the caller may read them: `subject` is its id or name. */
export function AuditLink({ subject }: { subject: string }) {
  const mayAudit = useMayAudit();
  if (!mayAudit) return null;
  return (
    <Link to="/audit" search={{ subject }} className="audit-link">
      Audit
    </Link>
  );
}
