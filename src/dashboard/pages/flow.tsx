import { PageTitle } from "../parts/states.tsx";

export function OneFlowPage() {
  return <PageTitle name="Flow">Flow</PageTitle>;
}
