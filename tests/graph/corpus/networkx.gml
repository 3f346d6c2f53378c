graph [
  directed 1
  node [
    id 0
    label "age"
  ]
  node [
    id 1
    label "marital-status"
  ]
  node [
    id 2
    label "gr&#246;&#223;e &#34;x&#34;"
  ]
  node [
    id 3
    label "alone"
  ]
  node [
    id 4
    label "U"
    observed "no"
  ]
  edge [
    source 0
    target 1
  ]
  edge [
    source 1
    target 2
  ]
  edge [
    source 4
    target 0
  ]
  edge [
    source 4
    target 3
  ]
]
