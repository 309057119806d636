import { PageTitle } from "../parts/states.tsx";

export function FlowsPage() {
  return <PageTitle name="Flows">Flows</PageTitle>;
}
