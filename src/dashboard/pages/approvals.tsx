import { PageTitle } from "../parts/states.tsx";

export function ApprovalsPage() {
  return <PageTitle name="Approvals">Approvals</PageTitle>;
}
