import { PageTitle } from "../parts/states.tsx";

export function ThrottlesPage() {
  return <PageTitle name="Throttles">Throttles</PageTitle>;
}
